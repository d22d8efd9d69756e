"""The guard stub and the guard tree: their text, what they accept, and the error."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from guard_stubs import Binding, StubText, emit_stub

import symshape
from symshape.artifact.constraint_checks import Origin
from symshape.codegen.host.guard_stub import Constraint, in_order
from symshape.codegen.host.guard_tree import Case, emit_tree
from symshape.errors import ShapeConstraintError
from symshape.prover.numbers.condition import Condition, all_of, any_of, at_least, differs, equals
from symshape.prover.numbers.expr import Expr, maximum, minimum
from symshape.runtime.checks import fail, load_function

COUNT = 6
NAMES = [f"s{i}" for i in range(COUNT)]
S = [Expr.symbol(name) for name in NAMES]


def stub(*constraints: Condition | Constraint, bindings: Sequence[Binding] = ()) -> StubText:
    given = [c if isinstance(c, Constraint) else Constraint(c) for c in constraints]
    return emit_stub(NAMES, bindings or [Binding(name, name) for name in NAMES], given)


def load(text: StubText) -> Callable[..., Any]:
    return load_function(text.source, "stub", {"fail": functools.partial(fail, text.checks)}, "<stub>")


def run(text: StubText, *values: int) -> None:
    load(text)([*values, *([2] * (COUNT - len(values)))])


def random_expr(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        return rng.choice(S) if rng.random() < 0.8 else Expr.const(rng.randint(-3, 9))
    left, right = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    makers: list[Callable[[], Expr]] = [
        lambda: left + right,
        lambda: left - right,
        lambda: left * right,
        lambda: left // rng.choice([2, 3, 8]),
        lambda: left % rng.choice([2, 5, 8]),
        lambda: maximum(left, right),
        lambda: minimum(left, right) * 2,
    ]
    return rng.choice(makers)()


def random_condition(rng: random.Random, depth: int = 2) -> Condition:
    kind = rng.randint(0, 4)
    if kind < 3 or depth == 0:
        maker = rng.choice([equals, differs, at_least])
        return maker(random_expr(rng, 2), random_expr(rng, 2))
    parts = random_condition(rng, depth - 1), random_condition(rng, depth - 1)
    return (all_of if kind == 3 else any_of)(*parts)


@pytest.mark.parametrize("seed", range(8))
def test_a_stub_accepts_what_the_conditions_accept(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        conditions = [random_condition(rng) for _ in range(rng.randint(1, 6))]
        text = stub(*conditions)
        check = load(text)
        for _ in range(15):
            sizes = [rng.randint(0, 12) for _ in range(COUNT)]
            expected = all(c.evaluate(dict(zip(NAMES, sizes))) for c in conditions)
            try:
                check(sizes)
                accepted = True
            except ShapeConstraintError:
                accepted = False
            assert accepted == expected, (text.source, sizes)


@pytest.mark.parametrize("seed", range(8))
def test_a_tree_finds_an_entry_that_holds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        entries = [
            [
                *(random_condition(rng, 1) for _ in range(rng.randint(0, 3))),
                equals(S[0], rng.randint(0, 5)) if rng.random() < 0.5 else at_least(S[1], rng.randint(0, 9)),
            ]
            for _ in range(rng.randint(1, 12))
        ]
        find = tree([Case.of(f"e{i}", conditions) for i, conditions in enumerate(entries)])
        for _ in range(25):
            sizes = [rng.randint(0, 10) for _ in range(COUNT)]
            values = dict(zip(NAMES, sizes))
            right = [f"e{i}" for i, conditions in enumerate(entries) if all(c.evaluate(values) for c in conditions)]
            found = find(sizes)
            assert found in right if right else found is None


def tree(cases: list[Case]) -> Callable[[Sequence[int]], Any]:
    lines = [f"def find(args):\n {', '.join(NAMES)} = args", *(f" {line}" for line in emit_tree(cases))]
    return load_function("\n".join(lines), "find", {case.name: case.name for case in cases}, "<tree>")


@pytest.mark.parametrize("count", [10, 100])
def test_depth_grows_with_the_logarithm_of_the_entries(count: int) -> None:
    cases = [
        Case.of(f"e{i}", [at_least(S[0], 10 * i), at_least(10 * i + 9, S[0]), equals(S[1] % 8, 0)])
        for i in range(count)
    ]
    lines = emit_tree(cases)
    assert max(len(line) - len(line.lstrip()) for line in lines) <= count.bit_length() + 1
    assert sum("s1 % 8" in line for line in lines) == 1  # shared by all: once, at the root
    find = tree(cases)
    assert [find([10 * i + 3, 8, *([2] * (COUNT - 2))]) for i in range(count)] == [f"e{i}" for i in range(count)]


def test_entries_whose_conditions_divide_by_zero_are_for_other_inputs() -> None:
    quotient = (S[0] - 1) // ((S[0] + 1) // 2)
    conditions = {"none": equals(S[0], 0), "one": equals(quotient, 0), "two": equals(quotient, 1)}
    rest = [2] * (COUNT - 1)
    for order in itertools.permutations(conditions):
        find = tree([Case.of(name, [conditions[name]]) for name in order])
        assert [find([n, *rest]) for n in (0, 1, 2, 4)] == ["none", "one", "two", "two"]


def test_common_subexpressions_are_computed_once() -> None:
    a, b, c, d = S[:4]
    source = stub(equals(a * b, c), at_least(a * b + c, d), equals((a * b) % 8, 0), at_least(a * b + c, 7 * d)).source
    assert source.count("s0*s1") == 1
    assert source.count("+ s2") == 1


def test_checks_are_ordered_by_cost_and_selectivity_and_divisions_by_symbols_come_last() -> None:
    a, b, c, d = S[:4]
    divides, bound, equal, heavy = equals(a % b, 0), at_least(c, 2), equals(a, c), at_least(a * b * c * d, 10)
    assert in_order([divides, heavy, bound, equal]) == [equal, bound, heavy, divides]
    with pytest.raises(ShapeConstraintError, match="does not hold for s0 = 4, s1 = 0"):
        run(stub(divides, differs(b, 0)), 4, 0)


def test_the_error_has_constraint_values_places_and_what_to_do() -> None:
    sources = ("batch: L['x'].size()[0]", "L['m']._modules['fc'].stride()[1]", "L['n']", "item at model.py:3")
    bindings = [Binding(f"s{i}", f"s{i}", source) for i, source in enumerate(sources)]
    a, b, c, d = S[:4]
    text = stub(Constraint(equals(a * b, c + d), "sizes must match", f"{__file__}:1"), bindings=bindings)
    run(text, 2, 3, 5, 1)
    with pytest.raises(RuntimeError) as raised:
        run(text, 2, 3, 4, 1)
    error = raised.value
    assert isinstance(error, ShapeConstraintError)
    assert error.constraint == "batch*m.fc.stride(1) == n + s3"
    assert error.values == {"batch": 2, "m.fc.stride(1)": 3, "n": 4, "s3": 1}
    lines = str(error).splitlines()
    assert lines[0] == (
        "sizes must match: batch*m.fc.stride(1) == n + s3 does not hold for "
        "batch = 2 (x.size(0), dim 0 of argument x), m.fc.stride(1) = 3 (stride 1 of argument m.fc), "
        "n = 4 (argument n), s3 = 1 (item at model.py:3)"
    )
    assert lines[1].startswith(f'  at: {__file__}:1: """The guard stub')
    assert lines[2].startswith("  next: pass inputs with another batch or m.fc.stride(1) or n")


def test_the_first_failing_check_is_reported_whatever_runs_first() -> None:
    a, b, c = S[:3]
    text = stub(Constraint(at_least(a * b * c, 100), "large"), Constraint(equals(a, b), "equal"))
    with pytest.raises(ShapeConstraintError, match="^large: "):
        run(text, 2, 3, 4)
    with pytest.raises(ShapeConstraintError, match="^equal: "):
        run(text, 20, 3, 4)


def test_declared_ranges() -> None:
    text = stub(bindings=[Binding("s0", "s0", "x.size()[0]", 2, 64)])
    run(text, 64)
    with pytest.raises(ShapeConstraintError, match=r"outside the declared range: x.size\(0\) <= 64 does not hold"):
        run(text, 65)


def test_tensors_are_read_where_the_binding_says() -> None:
    text = emit_stub(["x"], [Binding("s0", "x.size(1)", "x.size()[1]")], [Constraint(equals(S[0] % 2, 0))])
    check = load(text)
    check([torch.ones(3, 4)])
    with pytest.raises(ShapeConstraintError, match="dim 1 of argument x"):
        check([torch.ones(4, 3)])


def test_sources_in_the_users_words() -> None:
    assert Origin.parse("s0", "L['x'].size()[0]") == Origin("x.size(0)", "dim 0 of argument x")
    offset = Origin.parse("s0", "L['self']._parameters['w'].storage_offset()")
    assert offset == Origin("self.w.storage_offset()", "storage offset of argument self.w")
    assert Origin.parse("u0", "size at a.py:3") == Origin("u0", "size at a.py:3")


def test_the_host_program_tests_checks_jointly() -> None:
    def fn(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        n = i.item()
        torch._check(n >= 4)
        torch._check(n * 3 <= x.shape[0], lambda: "three times n at most")
        return x[:n] + n

    torch._dynamo.reset()
    report = symshape.explain(fn, torch.tensor(4), torch.randn(12))
    (graph,) = report.graphs
    assert graph.program_source.count("fail(") == 1 and graph.program_source.count("if not (") == 1
