"""The passes of the stage ``shaped``: compiled programs against eager, and sets of constraints before and after."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from imported import line
from torch_mlir import ir

import symshape
from symshape import dialects
from symshape.dialects.conditions import condition_of, emit_condition
from symshape.dialects.sizes import Sizes
from symshape.errors import ShapeConstraintError
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import PassFailure, run_pipeline
from symshape.passes.stages import STAGES
from symshape.prover.numbers.condition import Condition, any_of, at_least, differs, equals
from symshape.prover.numbers.expr import Expr, maximum, minimum

PASSES = STAGES["shaped"]
CHOICES = [(), *((name,) for name in PASSES), PASSES]  # what is switched off


# --- against eager ---------------------------------------------------------------------------------------------------


def sliced(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    n = (i * 2).item()
    torch._check(n >= 2)
    torch._check(n >= 2, lambda: "twice")
    torch._check(n <= x.shape[0], lambda: "at most the rows")
    torch._check(n <= x.shape[0] + 1, lambda: "implied")
    return x[:n].exp() + x.shape[0]


def pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch._check(x.shape[0] == y.shape[0])
    torch._check(x.shape[0] % 2 == 0, lambda: "rows come in pairs")
    both = torch.cat([x, y], 1).reshape(2, x.shape[0] // 2, -1)
    return both.sum(1) * (x.shape[1] * 2 // 2) + y.sum()


def found(x: torch.Tensor) -> torch.Tensor:
    where = x.nonzero()
    torch._check(where.shape[0] >= 2, lambda: "two at least")
    torch._check(where.shape[0] != 0, lambda: "some")
    return where.float().mean(0) * where.shape[0]


def late(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = (x @ x.t()).relu()
    n = (i * 1).item()
    torch._check(n >= 1)
    torch._check(n * 2 <= x.shape[0], lambda: "half of the rows")
    z = y.sum(0)
    m = (i + 1).item()
    torch._check(m >= 1)
    torch._check(m <= x.shape[0], lambda: "one more")
    return z[:n].sum() + z[:m].prod()


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


GOOD: list[tuple[Callable[..., torch.Tensor], list[tuple[Any, ...]]]] = [
    (sliced, [(torch.tensor(n), rows(m, 3)) for n, m in ((1, 5), (2, 4), (3, 6), (4, 9))]),
    (pairs, [(rows(2 * n, m), rows(2 * n, k)) for n, m, k in ((2, 3, 4), (1, 2, 2), (5, 7, 3))]),
    (found, [(torch.tensor(v),) for v in ([1, 0, 2], [0, 0, 3, 4, 5], [1, 1])]),
    (late, [(rows(m, 3), torch.tensor(n)) for m, n in ((4, 1), (6, 3), (9, 2))]),
]
BAD: list[tuple[Callable[..., torch.Tensor], tuple[Any, ...], str]] = [
    (sliced, (torch.tensor(0), rows(5, 3)), "twice"),
    (sliced, (torch.tensor(4), rows(5, 3)), "at most the rows"),
    (found, (torch.tensor([0, 7, 0]),), "two at least"),
    (late, (rows(5, 3), torch.tensor(3)), "half of the rows"),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("without", CHOICES, ids=lambda names: f"without {' '.join(names) or 'nothing'}")
@pytest.mark.parametrize(("fn", "inputs"), GOOD, ids=lambda value: getattr(value, "__name__", ""))
def test_a_compiled_program_is_eagers(fn: Any, inputs: list[tuple[Any, ...]], without: tuple[str, ...]) -> None:
    torch._dynamo.reset()
    compiled = symshape.compile(fn, disable_passes=list(without))
    for args in inputs:
        torch.testing.assert_close(compiled(*args), fn(*args))
    for other, args, message in BAD:
        if other is fn:
            with pytest.raises(ShapeConstraintError) as error:
                compiled(*args)
            assert message in str(error.value) or without


def test_the_report_says_what_became_of_constraints() -> None:
    torch._dynamo.reset()
    (graph,) = symshape.explain(sliced, *GOOD[0][1][0]).graphs
    checks = {c.message: c for c in graph.constraints if c.kind == "expect_true"}
    lines = [line(sliced, text) for text in ("torch._check(n >= 2)", '"twice"', '"at most the rows"', '"implied"')]
    merged = next(c for c in checks.values() if "twice" in c.message)
    assert (merged.status, merged.sources) == ("checked", (lines[0], lines[1]))
    assert checks["at most the rows"].status == "checked" and checks["at most the rows"].source == lines[2]
    assert checks["implied"].status == "implied" and checks["implied"].source == lines[3]
    assert "raise" not in graph.program_source and graph.program_source.count("fail(") == 1


def test_hoisted_checks_come_before_work() -> None:
    torch._dynamo.reset()
    (graph,) = symshape.explain(late, *GOOD[3][1][0]).graphs
    assert {c.status for c in graph.constraints if c.message == "half of the rows"} == {"checked"}
    assert {c.status for c in graph.constraints if c.message == "one more"} <= {"checked", "hoisted"}


# --- sets of constraints ---------------------------------------------------------------------------------------------

SYMBOLS = ("s0", "s1", "s2")
UNBACKED = ("u0", "u1")
LOW, HIGH = 2, 6  # of backed symbols
_SYMBOL = (
    '  %{0} = "symshape.symbol"() {{name = "{0}", min = {1} : i64, max = {2} : i64, divisor = 1 : i64, '
    'hint = -1 : i64, source = "", binding = "arg0.size({3})"}} : () -> index\n'
)
_UNBACKED = (
    '  %{0} = "symshape.unbacked_symbol"(%t) {{name = "{0}", min = 0 : i64, max = 3 : i64, kind = "item"}} '
    ": (tensor<i64>) -> index\n"
)
_WORK = '"host.call"(%t) {target = "aten.relu_.default", arguments = "($0,)"} : (tensor<i64>) -> ()'


def random_expr(rng: random.Random, names: list[str]) -> Expr:
    symbol = Expr.symbol(rng.choice(names))
    other = Expr.symbol(rng.choice(names))
    kinds: list[Callable[[], Expr]] = [
        lambda: symbol * rng.randint(1, 3) + rng.randint(-3, 3),
        lambda: symbol * other,
        lambda: symbol - other,
        lambda: symbol // rng.randint(2, 3),
        lambda: symbol % rng.randint(2, 3),
        lambda: maximum(symbol, other),
        lambda: minimum(symbol, other + 1),
        lambda: symbol + 2 * other,
        lambda: (symbol * 4 + other) // 4,
    ]
    return rng.choice(kinds)()


def random_condition(rng: random.Random, names: list[str], depth: int = 0) -> Condition:
    if depth < 1 and rng.random() < 0.2:
        return any_of(random_condition(rng, names, depth + 1), random_condition(rng, names, depth + 1))
    left = random_expr(rng, names)
    right = random_expr(rng, names) if rng.random() < 0.5 else Expr.const(rng.randint(0, 7))
    return rng.choice((equals, differs, at_least, at_least))(left, right)


def random_module(rng: random.Random) -> ir.Module:
    text = "func.func @f(%x: tensor<?x?x?xf32>, %t: tensor<i64>) {\n"
    text += "".join(_SYMBOL.format(name, LOW, HIGH, i) for i, name in enumerate(SYMBOLS))
    text += "".join(_UNBACKED.format(name) for name in UNBACKED) + "  " + _WORK + "\n  return\n}\n"
    module = ir.Module.parse(text)
    block = module.body.operations[0].regions[0].blocks[0]
    sizes = Sizes(block)
    for op in block.operations:
        sizes.read(op.operation)
    with ir.InsertionPoint(block.operations[len(block.operations) - 1]), ir.Location.unknown():
        for i in range(rng.randint(2, 8)):
            kind = rng.choice(("assume", "expect_true", "expect_true", "expect_true", "guard"))
            names = [*SYMBOLS, *UNBACKED] if kind == "expect_true" else list(SYMBOLS)
            value = emit_condition(sizes, random_condition(rng, names))
            text_of = {"expect_true": {"message": f"m{i}"}, "guard": {"reason": f"m{i}"}}.get(kind, {})
            attributes = {key: ir.StringAttr.get(text) for key, text in text_of.items()}
            ir.Operation.create(f"symshape.{kind}", [], [value], attributes, loc=ir.Location.file("m.py", i + 1, 1))
    return module


def conditions(module: ir.Module, kind: str) -> list[Condition]:
    block = module.body.operations[0].regions[0].blocks[0]
    operations = [view.operation for view in block.operations]
    sizes = Sizes(block)
    sizes.learn(operations)
    return [condition_of(sizes, op.operands[0]) for op in operations if op.name == f"symshape.{kind}"]


def points() -> Iterator[dict[str, int]]:
    for values in itertools.product(*[range(LOW, HIGH + 1)] * len(SYMBOLS), *[range(-1, 6)] * len(UNBACKED)):
        yield dict(zip((*SYMBOLS, *UNBACKED), values))


def holds(conditions_: list[Condition], point: dict[str, int]) -> bool:
    """A condition that divides by zero does not hold."""
    try:
        return all(condition.evaluate(point) for condition in conditions_)
    except ZeroDivisionError:
        return False


@pytest.mark.sample(2)
@pytest.mark.parametrize("passes", [*((name,) for name in PASSES), PASSES], ids=" ".join)
def test_what_is_left_means_the_same(passes: tuple[str, ...]) -> None:
    """Assumptions alone, guards where those hold, and checks where both do: equal at every point of a box."""
    rng = random.Random(11)
    with dialects.load(ir.Context()), ir.Location.unknown():
        for _ in range(40):
            module = random_module(rng)
            before = {kind: conditions(module, kind) for kind in ("assume", "guard", "expect_true")}
            try:
                run_pipeline(module, ",".join(passes), PassContext())
            except PassFailure as failure:
                assert "can never hold" in str(failure)
                everything = [c for kind in before.values() for c in kind]
                assert not any(holds(everything, point) for point in points())
                continue
            after = {kind: conditions(module, kind) for kind in before}
            for point in itertools.islice(points(), 0, None, 3):
                for kind in before:
                    assert holds(before[kind], point) == holds(after[kind], point), (kind, before, after, point)
                    if not holds(before[kind], point):
                        break  # what comes after need not be the same then


def test_merging_keeps_places_and_messages() -> None:
    text = _checks(("s0 + s1", 5, "a"), ("s1 + s0", 5, "b"), ("s0 + s1", 6, "c"))
    with dialects.load(ir.Context()):
        module = ir.Module.parse(text)
        run_pipeline(module, ",".join(PASSES), PassContext())
        (op,) = (
            v.operation
            for v in module.body.operations[0].regions[0].blocks[0].operations
            if v.operation.name == "symshape.expect_true"
        )
        from symshape.dialects.locations import source_lines

        assert source_lines(op.location) == ("m.py:3", "m.py:1", "m.py:2")
        assert op.attributes["message"].value == "c; a; b"


def _checks(*checks: tuple[str, int, str]) -> str:
    lines = ["func.func @f(%x: tensor<?x?x?xf32>) {"]
    lines += [_SYMBOL.format(name, LOW, HIGH, i).rstrip() for i, name in enumerate(SYMBOLS)]
    for i, (sum_, least, message) in enumerate(checks):
        left, right = sum_.split(" + ")
        lines += [
            f"  %c{i} = arith.constant {least} : index",
            f"  %a{i} = arith.addi %{left}, %{right} : index",
            f"  %b{i} = arith.cmpi sge, %a{i}, %c{i} : index",
        ]
        lines.append(f'  "symshape.expect_true"(%b{i}) {{message = "{message}"}} : (i1) -> () loc("m.py":{i + 1}:1)')
    return "\n".join([*lines, "  return", "}"])


def test_a_check_that_never_holds_is_an_error_at_its_line() -> None:
    with dialects.load(ir.Context()):
        module = ir.Module.parse(_checks(("s0 + s1", 13, "thirteen")))
        with pytest.raises(PassFailure, match="can never hold: s0 \\+ s1 >= 13 .*thirteen.*m.py:1"):
            run_pipeline(module, "eliminate-implied", PassContext())
