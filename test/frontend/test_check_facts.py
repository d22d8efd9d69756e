"""``torch._check`` of sizes: a fact for what is compiled, checked by a guard, or when the size is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from imported import line
from torch_mlir import ir

import symshape
from symshape import dialects
from symshape.dialects.function_facts import facts_of
from symshape.errors import ShapeConstraintError
from symshape.prover.numbers.expr import Expr
from symshape.tools.measure import Graphs
from symshape.tools.report import GraphReport


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def backed(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.shape[0] % 8 == 0, lambda: "blocks of 8")
    torch._check(x.shape[1] <= 64)
    return torch.softmax(x, 0)


def backed_unchecked(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 0)


def unbacked(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    n = (i * 2).sum().item()
    torch._check(n % 8 == 0, lambda: "blocks of 8")
    torch._check(n >= 2)
    torch._check(n <= x.shape[0])
    return torch.softmax(x[:n] * 2, 0)


def unbacked_unchecked(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    n = (i * 2).sum().item()
    torch._check(n >= 2)
    torch._check(n <= x.shape[0])
    return torch.softmax(x[:n] * 2, 0)


def _explain(fn: Callable[..., Any], *args: Any) -> GraphReport:
    torch._dynamo.reset()
    report = symshape.explain(fn, *args)
    torch.testing.assert_close(report.result, fn(*args))
    (graph,) = report.graphs
    return graph


def _facts_in_kernels(graph: GraphReport) -> int:
    """How many things the kernels take for granted of their sizes."""
    _, *kernels = re.split(r"func\.func private @kernel_\d+", graph.stage("kernels"))
    assert kernels
    return sum(kernel.count("symshape.assume") for kernel in kernels)


BACKED = (torch.randn(16, 8),)
UNBACKED = (torch.tensor([2, 2]), torch.randn(20, 3))


def test_of_an_input_is_a_fact_that_a_guard_checks() -> None:
    graph = _explain(backed, *BACKED)
    constraints = {(c.kind, c.source): c for c in graph.constraints}
    for text in ("x.shape[0] % 8", "x.shape[1] <= 64"):
        place = line(backed, text)
        assert constraints["assume", place].status in ("assumed", "implied")
        assert constraints["expect_true", place].status == "proven"
    assert "fail(" not in graph.program_source  # Dynamo checks it: nothing is left to do at run time
    assert max(row.max for row in graph.symbols if row.max < 2**40) == 64
    assert _facts_in_kernels(graph) > _facts_in_kernels(_explain(backed_unchecked, *BACKED))


def test_of_an_input_that_does_not_hold_is_the_users_error() -> None:
    with Graphs() as graphs:
        compiled = symshape.compile(backed)
        for shape in ((16, 8), (8, 64), (80, 3)):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), backed(x))
        assert graphs.read().graphs == 1
        with pytest.raises(RuntimeError, match=r"torch\._check\(x\.shape\[0\] % 8 == 0"):
            compiled(torch.randn(17, 8))


def test_of_a_data_dependent_size_is_checked_and_then_a_fact() -> None:
    graph = _explain(unbacked, *UNBACKED)
    checked = {c.source: c for c in graph.constraints if c.status == "checked"}
    place = line(unbacked, "n % 8 == 0")
    assert checked[place].kind == "expect_true" and checked[place].message == "blocks of 8"
    assert line(unbacked, "n <= x.shape[0]") in checked
    # Checked before the first kernel that relies on it is launched.
    source = graph.program_source
    assert source.index("% 8") < source.index("fail(") < source.rindex("kernel_1(")
    assert _facts_in_kernels(graph) > _facts_in_kernels(_explain(unbacked_unchecked, *UNBACKED))


_MODULE = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>, %t: tensor<i64>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %s0 = "symshape.symbol"() {{name = "s0", min = 2 : i64, max = 9223372036854775807 : i64, divisor = 1 : i64,
    hint = -1 : i64, source = "x", binding = "arg0.size(0)"}} : () -> index
  %s1 = "symshape.symbol"() {{name = "s1", min = 2 : i64, max = 9223372036854775807 : i64, divisor = 1 : i64,
    hint = -1 : i64, source = "y", binding = "arg1.size(0)"}} : () -> index
  "symshape.bind"(%x, %s0, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  "symshape.bind"(%y, %s1, %c1, %c0) : (tensor<?xf32>, index, index, index) -> ()
  {before}
  %u0 = "symshape.unbacked_symbol"(%t) {{name = "u0", min = 0 : i64, max = 9223372036854775807 : i64, kind = "item"}}
    : (tensor<i64>) -> index
  %rest = arith.remsi %u0, %c8 : index
  %divides = arith.cmpi eq, %rest, %c0 : index
  "symshape.expect_true"(%divides) {{message = "blocks of 8"}} : (i1) -> ()
  {after}
  return
}}
"""
_CALL = '"host.call"(%{0}) {{target = "aten.sum.default", arguments = "($0,)"}} : (tensor<?xf32>) -> ()'
_EQUAL = '%e{0} = arith.cmpi eq, %{0}, %{1} : index "symshape.{2}"(%e{0}) {{{3}}} : (i1) -> ()'


@pytest.mark.parametrize(
    ("before", "after", "is_fact"),
    [
        ("", "", True),
        (_CALL.format("x"), "", True),  # knows nothing of u0
        (_CALL.format("x"), _EQUAL.format("u0", "s0", "expect_true", 'message = "m"'), False),
        (_CALL.format("x"), _EQUAL.format("u0", "s1", "expect_true", 'message = "m"'), True),
        (  # x has as many elements as y, which has u0
            _CALL.format("x") + _EQUAL.format("s0", "s1", "assume", ""),
            _EQUAL.format("u0", "s1", "expect_true", 'message = "m"'),
            False,
        ),
        ("", _EQUAL.format("u0", "s0", "expect_true", 'message = "m"') + _CALL.format("x"), True),
    ],
)
def test_a_check_is_no_fact_for_what_runs_before_it(before: str, after: str, is_fact: bool) -> None:
    with dialects.load(ir.Context()):
        module = ir.Module.parse(_MODULE.format(before=before, after=after))
        facts = facts_of(module.body.operations[0])
    assert facts.divides(8, Expr.symbol("u0")) is is_fact


def test_of_a_data_dependent_size_that_does_not_hold_names_line_and_value() -> None:
    with Graphs() as graphs:
        compiled = symshape.compile(unbacked)
        for i, rows in (([2, 2], 20), ([1, 3], 8), ([4, 4, 4], 24)):
            args = (torch.tensor(i), torch.randn(rows, 3))
            torch.testing.assert_close(compiled(*args), unbacked(*args))
        assert graphs.read().graphs == 1
        with pytest.raises(ShapeConstraintError) as raised:
            compiled(torch.tensor([2, 3]), torch.randn(20, 3))
    text = str(raised.value)
    assert text.startswith("blocks of 8: ") and "= 10" in text and line(unbacked, "n % 8 == 0") in text
