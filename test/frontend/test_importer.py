"""What the frontend imports: symbols, layouts, guards, assertions, locations."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from imported import explain, imported, line, read
from torch._guards import SLoc

import symshape
from symshape.errors import ShapeConstraintError
from symshape.frontend.bridge.source_lines import user_frame
from symshape.prover.numbers.expr import Expr

INT64_MAX = 2**63 - 1


def test_a_symbol_has_its_row() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    main = imported(fn, torch.randn(6, 4))
    rows = main.symbols
    # The sizes are the tensor's: they are no arguments of their own.
    assert [row.attributes["source"] for row in rows.values()] == ["L['x'].size()[0]", "L['x'].size()[1]"]
    assert list(rows) == ["arg0.size(0)", "arg0.size(1)"]
    for row, hint in zip(rows.values(), (6, 4)):
        assert [row.attributes[key] for key in ("min", "max", "divisor", "hint")] == [0, INT64_MAX, 1, hint]
    first, second = (Expr.symbol(row.attributes["name"]) for row in rows.values())
    bind = main.named("symshape.bind")[0].layout
    assert bind is not None
    assert (bind.sizes, bind.strides, bind.offset) == ((first, second), (second, Expr.const(1)), Expr.const(0))


def test_bounds_come_from_mark_dynamic() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = torch.randn(6)
    torch._dynamo.mark_dynamic(x, 0, min=3, max=64)
    (row,) = imported(fn, x).symbols.values()
    assert [row.attributes[key] for key in ("min", "max", "hint")] == [3, 64, 6]


def test_a_symbol_is_read_off_a_size_where_no_argument_is_it() -> None:
    """Without Dynamo: the sizes are no arguments."""
    from torch.fx.experimental.proxy_tensor import make_fx

    gm = make_fx(lambda x: x.relu(), tracing_mode="symbolic")(torch.randn(6, 4).t())
    main = read(_import_text(gm))
    assert list(main.symbols) == ["arg0.size(0)", "arg0.size(1)"]


def _import_text(gm: torch.fx.GraphModule) -> str:
    from torch_mlir import ir

    from symshape import dialects
    from symshape.frontend.bridge.fake_tensors import shape_env_of
    from symshape.frontend.importer.import_fx import import_graph

    context = dialects.load(ir.Context())
    return str(import_graph(gm, context, shape_env_of(gm)).module.operation.get_asm(enable_debug_info=True))


def test_an_integer_argument_is_a_symbol() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + torch.full((n, 1), 2.0).sum()

    main = imported(fn, torch.randn(6), 5)
    (row,) = (row for row in main.symbols.values() if row.attributes["source"] == "L['n']")
    position = int(row.attributes["binding"].removeprefix("arg"))
    assert main.arguments[position] == ("index", 0)  # the symbol stands for it
    assert row.attributes["hint"] == 5


def test_symbolic_strides_and_offset() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    base = torch.randn(6, 9)
    main = imported(fn, base[:, 3:])
    name = {row.attributes["source"]: Expr.symbol(row.attributes["name"]) for row in main.symbols.values()}
    bind = main.named("symshape.bind")[0].layout
    assert bind is not None
    assert bind.sizes == (name["L['x'].size()[0]"], name["L['x'].size()[1]"])
    assert bind.strides == (name["L['x'].stride()[0]"], Expr.const(1))
    assert bind.offset == name["L['x'].storage_offset()"]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_strided_inputs_are_right_in_one_graph(target: str) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2 + x.sum(1, keepdim=True), x.t().exp()

    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    compiled = symshape.compile(fn, target=target)
    base = torch.randn(8, 19)
    compiled(base[:, 3:])
    before = counters["stats"]["unique_graphs"]
    for x in (base[:, 3:], base[2:, 5:9], base[1:, 2:4]):
        for result, expected in zip(compiled(x), fn(x)):
            torch.testing.assert_close(result, expected)
            assert result.stride() == expected.stride()
    assert counters["stats"]["unique_graphs"] == before


def test_guards_are_facts_at_the_users_line() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            return x + 1
        return x - 1

    main = imported(fn, torch.randn(6))
    (name,) = (row.attributes["name"] for row in main.symbols.values())
    places = {op.condition: op.where for op in main.named("symshape.assume")}
    assert places[f"{name} >= 4"] == line(fn, "x.shape[0] > 3")
    assert main.symbols["arg0.size(0)"].attributes["min"] == 4


def test_a_guard_without_a_user_line_has_the_frameworks() -> None:
    frames = traceback.extract_stack(limit=1)
    assert user_frame(SLoc(frames[0], None)) == (__file__, frames[0].lineno)
    assert user_frame(SLoc("/torch/_refs/__init__.py:12", None)) == ("/torch/_refs/__init__.py", 12)


def test_check_of_input_sizes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] % 2 == 0, lambda: "rows come in pairs")
        return x + y[0]

    main = imported(fn, torch.randn(6, 4), torch.randn(3, 4))
    even = [op for op in main.named("symshape.assume") if "% 2 == 0" in op.condition]
    assert [op.where for op in even] == [line(fn, "torch._check")]
    (must,) = main.named("symshape.expect_true")
    assert (must.condition, must.where) == (even[0].condition, line(fn, "torch._check"))
    assert must.attributes["message"] == "rows come in pairs"


def test_the_same_size_twice_is_one_symbol() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] == y.shape[0])
        return x + y

    main = imported(fn, torch.randn(6), torch.randn(6))
    assert len(main.symbols) == 1
    first, second = (op.layout for op in main.named("symshape.bind")[:2])
    assert first == second
    # The second size is an argument too, since a check that always holds read it.
    assert [type_ for type_, _ in main.arguments] == ["tensor<?xf32>", "index", "tensor<?xf32>"]
    assert main.arguments[1] == ("index", 0)


def test_item_is_a_symbol() -> None:
    def fn(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        n = (i * 2).sum().item()
        torch._check(n >= 2, lambda: "n is 2 at least")
        torch._check(n <= x.shape[0])
        return x[:n] * 3

    main = imported(fn, torch.tensor([1, 1]), torch.randn(5, 4))
    (symbol,) = main.named("symshape.unbacked_symbol")
    name = symbol.attributes["name"]
    assert symbol.attributes["kind"] == "item" and symbol.where == line(fn, ".item()")
    checks = {op.condition: op for op in main.named("symshape.expect_true")}
    assert checks[f"{name} >= 2"].attributes["message"] == "n is 2 at least"
    assert checks[f"{name} >= 2"].where == line(fn, "n >= 2")
    # The framework's own text names symbols of another graph: it is not repeated.
    (other,) = (op for op in checks.values() if op.where == line(fn, "n <= x.shape[0]"))
    assert other.attributes["message"] == "runtime assertion failed"
    slice_, *_ = (op.layout for op in main.named("symshape.bind") if op.where == line(fn, "x[:n]"))
    assert slice_ is not None and slice_.sizes[0] == Expr.symbol(name)


def test_nonzero_is_a_symbol_of_size() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero() + 1

    main = imported(fn, torch.tensor([1, 0, 2]))
    (symbol,) = main.named("symshape.unbacked_symbol")
    assert (symbol.attributes["kind"], symbol.attributes["dim"]) == ("size", 0)
    assert symbol.where == line(fn, "nonzero")


def test_calls_have_the_users_line() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (4,))

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return inner(y)

    main = imported(fn, torch.randn(6, 4), torch.randn(4, 4))
    assert [op.where for op in main.calls("aten.mm.default")] == [line(fn, "x @ w")]
    assert {op.where for op in main.calls("aten.rsqrt.default")} == {line(inner, "layer_norm")}


def test_backward_is_imported() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1).sum()

    graphs = explain(fn, torch.randn(6, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True))
    assert [graph.kind for graph in graphs] == ["forward", "backward"]
    forward, backward = (read(graph.stage("imported")) for graph in graphs)
    sources = {row.attributes["source"]: row.attributes["name"] for row in forward.symbols.values()}
    for row in backward.symbols.values():  # the same symbols, read off what the forward graph saved
        assert sources[row.attributes["source"]] == row.attributes["name"]
    assert {op.where for op in backward.calls("aten.mm.default")} == {line(fn, "x @ w")}


def test_every_value_of_a_graph_is_typed_and_bound() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x @ w, (5,)).argmax(-1)

    main = imported(fn, torch.randn(6, 4), torch.randn(4, 5))
    results = sum(len(list(op.attributes.get("result_indices", [0]))) for op in main.named("host.call"))
    tensors = sum(type_.startswith("tensor") for type_, _ in main.arguments)
    assert len(main.named("symshape.bind")) == results + tensors


# --- at run time -----------------------------------------------------------------------------------------------------


def _error(fn: Callable[..., Any], good: tuple[Any, ...], bad: tuple[Any, ...]) -> str:
    torch._dynamo.reset()
    compiled = symshape.compile(fn)
    torch.testing.assert_close(compiled(*good), fn(*good))
    with pytest.raises(ShapeConstraintError) as raised:
        compiled(*bad)
    return str(raised.value)


def test_a_failing_check_names_line_symbols_and_values() -> None:
    def fn(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        n = (i * 2).item()
        torch._check(n >= 4)
        torch._check(n <= x.shape[0], lambda: "n is at most the rows")
        return x[:n] * 3

    good = (torch.tensor(2), torch.randn(5, 4))
    text = _error(fn, good, (torch.tensor(1), torch.randn(5, 4)))
    assert ">= 4 does not hold for u" in text and f" = 2 (item at {line(fn, '.item()')})" in text
    assert f"at: {line(fn, 'n >= 4')}: torch._check(n >= 4)" in text
    text = _error(fn, good, (torch.tensor(4), torch.randn(5, 4)))
    assert text.startswith("n is at most the rows: ")
    assert " = 8 (item at " in text and "x.size(0) = 5 (dim 0 of argument x)" in text


def test_a_failing_check_of_a_data_dependent_size() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.shape[0] >= 2, lambda: "two at least")
        return found * 2

    text = _error(fn, (torch.tensor([1, 0, 2]),), (torch.tensor([1, 0, 0]),))
    assert text.startswith("two at least: ") and f" = 1 (size at {line(fn, 'nonzero')})" in text


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_check_of_a_value_that_is_no_size_is_eagers(dtype: torch.dtype) -> None:
    def fn(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        value = flag.max().item()
        torch._check(value if dtype is torch.bool else value > 0.5, lambda: "too small")
        return x + 1

    torch._dynamo.reset()
    compiled, x = symshape.compile(fn), torch.randn(3)
    torch.testing.assert_close(compiled(torch.ones(2).to(dtype), x), x + 1)
    with pytest.raises(RuntimeError):
        compiled(torch.zeros(2).to(dtype), x)
