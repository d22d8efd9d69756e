"""Facts: what they prove, and by brute force that nothing they say is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from prover_trees import Tree, build, compute, trees

from symshape.prover.numbers.bounds import Bounds, forget_shared_bounds
from symshape.prover.numbers.counterexamples import Counterexamples
from symshape.prover.numbers.expr import Expr, as_expr, maximum, minimum
from symshape.prover.numbers.facts import Facts, Row

SIZES = ["s0", "s1", "s2"]
DIMS = ["d0", "d1"]
s0, s1, s2, s3, d0, d1, d2, d3 = map(Expr.symbol, ["s0", "s1", "s2", "s3", "d0", "d1", "d2", "d3"])


def sizes() -> Facts:
    return Facts({"s0": Row(2, None), "s1": Row(2, None), "s2": Row(1, 64, 4), "s3": Row(2, None)})


def loop() -> Facts:
    return sizes().with_dims({"d0": s0, "d1": s1, "d2": 64, "d3": s3})


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (s0 * s1, (4, None)),
        (s0 * s1 - s0, (2, None)),
        (s2 + 1, (5, 65)),
        (s0 % s1, (0, None)),
        (s0 % 8, (0, 7)),
        (s0 - s0 % 8, (0, None)),
        ((s2 + 7) // 8, (1, 8)),
        (maximum(s2, 10), (10, 64)),
        (minimum(s0, 10), (2, 10)),
        ((s0 + 3) // 4 - s0 // 4, (0, 1)),
        (s0 * s0 - 4, (0, None)),
        (as_expr(5), (5, 5)),
        (Expr.symbol("unknown"), (None, None)),
    ],
)
def test_bounds(expr: Expr, expected: tuple[int | None, int | None]) -> None:
    assert sizes().bounds(expr) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ((d0 * s1 + d1) // s1, d0),
        ((d0 * s1 + d1) % s1, d1),
        ((d0 * s1 * 64 + d1 * 64 + d2) // 64, d0 * s1 + d1),
        ((d0 * s1 * 64 + d1 * 64 + d2) // (64 * s1), d0),
        (((d0 * s1 * 64 + d1 * 64 + d2) // 64) % s1, d1),
        (((d0 * s1 + d1) * s3 + d3) // s3 // s1, d0),
        (((d0 * s1 + d1) * s3 + d3) // s3 % s1, d1),
        (((d0 * s1 + d1) * s3 + d3) // (s1 * s3) % s0, d0),
        (((d0 * s1 + d1) * s3 + d3) % (s1 * s3), d1 * s3 + d3),
        (((d0 * (s1 + 1) + d1) * s3 + d3) // (s3 * (s1 + 1)), d0),
        ((((d0 * s1 + d1) * s3 + d3) * 64 + d2) // 64 % s3, d3),
        ((((d0 * s1 + d1) * s3 + d3) * 64 + d2) // (64 * s3) % s1, d1),
        (d1 // s1, as_expr(0)),
        (maximum(d0, s0), s0),
        (minimum(d0 + 1, s0), d0 + 1),
        (maximum(s0 - 1, d0, 0), s0 - 1),
        (4 * (s2 // 4), s2),
        ((s2 + 3) // 4, s2 // 4),
        (s2 % 4, as_expr(0)),
        (d0 // s1, d0 // s1),
    ],
)
def test_simplify(expr: Expr, expected: Expr) -> None:
    assert loop().simplify(expr) == expected


@pytest.mark.parametrize(
    "expr",
    [
        (d0 // 64 // s1) * (s1 * 64) + (d0 // 64 % s1) * 64 + d0 % 64,
        (d0 // (64 * s1)) * (s1 * 64) + (d0 % (64 * s1)) // 64 * 64 + d0 % 64,
    ],
)
def test_mixed_radix_digits_recombine(expr: Expr) -> None:
    facts = sizes().with_dims({"d0": s0 * s1 * 64})
    assert facts.simplify(expr) == d0
    assert facts.simplify(d0 // (64 * s1) % s0) == d0 // (64 * s1)


def test_where_a_point_is_no_factor_of_the_size_is_0() -> None:
    facts = Facts({"s0": Row(0, None), "s1": Row(0, None), "s2": Row(None, None)})
    points = facts.with_dims({"d0": s0 * s1, "d1": s2 * s3})
    assert points.nonnegative(s0 - 1) and points.nonnegative(s1 - 1) and not facts.nonnegative(s0 - 1)
    assert not points.nonnegative(s2) and not points.nonnegative(-1 - s2)
    assert points.simplify(s0 * ((d0 - 7) // s1 // s0) - s0 * ((d0 - 7) // (s0 * s1))) == 0


def test_digits_of_symbolic_radix_are_shown_as_mod() -> None:
    facts = sizes().with_dims({"d0": s0 * s1 * s3})
    digit = facts.simplify(d0 // s3 % s1)
    assert str(digit) == "(d0 // s3) % s1"
    assert facts.simplify(digit) == digit
    assert str(facts.simplify((digit + s2) % s0)) == "(s2 + (d0 // s3) % s1) % s0"
    assert facts.simplify(d0 // (s1 * s3) * (s1 * s3) + digit * s3 + d0 % s3) == d0


def test_what_is_nested_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In e - q*(e//q) all of e is there twice, and in the next remainder four times."""
    original, count = Expr.map_atoms, 0

    def counted(self: Expr, *args: Any) -> Expr:
        nonlocal count
        count += 1
        return original(self, *args)

    def work(depth: int) -> int:
        nonlocal count
        count, expr = 0, s0
        facts = Facts({name: Row(1, None) for name in ("s0", "s1")})
        for _ in range(depth):
            expr = (3 * expr + s1) // 2 % 100
        found = facts.simplify(expr)
        values = {"s0": 41, "s1": 7}
        assert found.evaluate(values) == expr.evaluate(values)
        return count

    monkeypatch.setattr(Expr, "map_atoms", counted)
    assert work(9) < 4 * work(4)


def test_order_is_proven() -> None:
    facts = loop()
    assert facts.less_equal(d0 * s1 + d1 + 1, s0 * s1)
    assert facts.less_equal((d0 * s1 + d1) * s3 + d3 + 1, s0 * s1 * s3)
    assert facts.nonnegative(d0 * s1 + d1)
    assert not facts.less_equal(d0 * s1 + d1 + 2, s0 * s1)
    assert not facts.less_equal(s0, s1)


def test_divides() -> None:
    facts = sizes()
    assert facts.divides(4, s2 * s0 + 8)
    assert facts.divides(8, 2 * s2)
    assert facts.divides(16, s2 * s2)
    assert not facts.divides(8, s2)
    assert facts.divides(1, s0)
    facts.assume_equal((s0 + s1) % 8, 0)
    assert facts.divides(4, s0 + s1)
    assert not facts.divides(4, s0 - s1)
    assert facts.simplify((s0 + s1) % 4) == 0
    assert facts.simplify(8 * ((s0 + s1) // 8)) == s0 + s1


def test_equalities() -> None:
    facts = sizes()
    facts.assume_equal(s0, 4 * s1)
    assert facts.equal(s0 * s3, s1 * s3 * 4)
    assert facts.simplify(s0 // 4) == s1
    assert facts.divides(4, s0)
    assert facts.bounds(s0) == (8, None)
    assert not facts.equal(s0, s1)


def test_remainder_of_a_symbol_makes_it_a_multiple() -> None:
    facts = sizes()
    facts.assume_equal(s0 % 6, 0)
    assert facts.equal(6 * (s0 // 6), s0)
    assert facts.bounds(s0) == (6, None)
    assert facts.simplify((s0 + 4) // 2) == s0 // 2 + 2
    facts.assume_equal(s0 % 4, 0)
    assert facts.divides(12, s0)
    facts.assume_equal(s1 % s0, 0)
    assert facts.simplify(s0 * (s1 // s0)) == s1


def test_coprime_factors_across_an_equality() -> None:
    facts = sizes()
    facts.assume_equal(4 * s0, 3 * s1)
    assert facts.divides(4, s1)
    assert facts.divides(3, s0)


def test_products_cancel() -> None:
    facts = sizes()
    facts.assume_equal(s0 * s1, s0 * s3)
    assert facts.equal(s1, s3)
    facts = Facts({"s0": Row(0, None)})
    facts.assume_equal(s0 * s1, s0 * s3)  # s0 may be 0
    assert not facts.equal(s1, s3)
    facts = sizes()
    facts.assume_equal(s0 * s1, s2 * s3)
    assert facts.equal(2 * s0 * s1 + d0, 2 * s2 * s3 + d0)
    assert facts.equal(s0 * s1 * d0, s2 * s3 * d0)


def test_assumed_order() -> None:
    facts = sizes()
    facts.assume_nonnegative(s0 - s1 - 3)
    assert facts.simplify(maximum(s0, s1)) == s0
    assert facts.bounds(s0 - s1) == (3, None)
    assert facts.nonnegative(2 * s0 - 2 * s1 - 6)
    facts.assume_nonnegative(100 - s0)
    assert facts.bounds(s0)[1] == 100


def test_what_a_copy_learns_stays_there() -> None:
    facts = sizes()
    branch = facts.copy()
    branch.assume_equal(s0, s1)
    branch.assume_equal(s3 % 8, 0)
    assert branch.equal(s0, s1)
    assert branch.divides(8, s3)
    assert not facts.equal(s0, s1)
    assert not facts.divides(8, s3)
    assert facts.with_dims({"d0": s3 - 4}).bounds(s3) == (5, None)
    assert facts.bounds(s3) == (2, None)


@pytest.mark.parametrize("size", [Row(0, 0), Row(-3, 0)])
def test_a_loop_without_points(size: Row) -> None:
    """Over an empty dim: any answer is right, but there is one, also where something is divided by d0 + 1."""
    facts = Facts({"s0": Row(3, 9), "s1": size}).with_dims({"d0": s1})
    for expr in (s0 // (d0 + 1), s0 % (d0 + 1), 7 * (s0 // (d0 + 1)) - s0, (s0 * d0) // (d0 + 1)):
        assert len(facts.bounds(expr)) == 2
        assert facts.nonnegative(expr) in (True, False)
        assert facts.simplify(expr).symbols <= expr.symbols


def test_contradictions_are_ignored() -> None:
    facts = sizes()
    facts.assume_equal(3, 4)
    facts.assume_nonnegative(-s0)
    facts.assume_equal(s1, 0)
    facts.simplify(s0 // s1)
    assert not facts.equal(s3, 4)


rows = st.builds(
    Row, st.sampled_from([None, -3, 0, 1, 2]), st.sampled_from([None, 4, 6, 9]), st.sampled_from([1, 1, 2, 3])
)


def _points(
    ranges: Mapping[str, Row], dims: Mapping[str, Tree], zeros: list[Tree], nonnegatives: list[Tree], seed: int
) -> Iterator[dict[str, int]]:
    """Some of the values for which everything assumed holds."""
    chance = random.Random(seed)
    for _ in range(200):
        values = {}
        for name, row in ranges.items():
            low, high = (-4 if row.min is None else row.min), (12 if row.max is None else row.max)
            values[name] = chance.choice([v for v in range(low, high + 1) if v % row.divisor == 0])
        try:
            ends = {name: compute(size, values) for name, size in dims.items()}
            if min(ends.values()) < 1:
                continue
            values.update((name, chance.randrange(end)) for name, end in ends.items())
            if all(compute(t, values) == 0 for t in zeros) and all(compute(t, values) >= 0 for t in nonnegatives):
                yield values
        except ZeroDivisionError:
            continue


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(dict.fromkeys(SIZES, rows)),
    st.fixed_dictionaries({name: trees(SIZES, 2) for name in DIMS}),
    st.lists(trees(SIZES + DIMS, 3), max_size=2),
    st.lists(trees(SIZES + DIMS, 3), max_size=2),
    trees(SIZES + DIMS, 6),
    trees(SIZES + DIMS, 3),
    st.integers(0, 2**20),
)
def test_nothing_said_is_wrong(
    ranges: dict[str, Row],
    dims: dict[str, Tree],
    zeros: list[Tree],
    nonnegatives: list[Tree],
    tree: Tree,
    other: Tree,
    seed: int,
) -> None:
    try:
        expr, other_expr = build(tree), build(other)
        facts = Facts(ranges).with_dims({name: build(size) for name, size in dims.items()})
        for zero in zeros:
            facts.assume_equal(build(zero), 0)
        for nonnegative in nonnegatives:
            facts.assume_nonnegative(build(nonnegative))
    except ZeroDivisionError:
        assume(False)
    simple, (low, high) = facts.simplify(expr), facts.bounds(expr)
    below, same = facts.less_equal(expr, other_expr), facts.equal(expr, other_expr)
    divisors = [k for k in (2, 3, 4, 6) if facts.divides(k, expr)]
    for values in _points(ranges, dims, zeros, nonnegatives, seed):
        try:
            value, other_value = compute(tree, values), compute(other, values)
        except ZeroDivisionError:
            continue
        assert simple.evaluate(values) == value
        assert low is None or low <= value
        assert high is None or value <= high
        assert not below or value <= other_value
        assert not same or value == other_value
        assert all(value % k == 0 for k in divisors)


def test_counterexamples_are_not_chosen_of_a_range_that_is_being_simplified() -> None:
    """The end of d0's range is ``s0 % s2 - 1``, of which the simplifier asks whether it is less than s2."""
    s0, s2, d0 = (Expr.symbol(name) for name in ("s0", "s2", "d0"))
    facts = Facts({"s0": Row(None, None), "s2": Row(1, None)}).with_dims({"d0": s0 % s2, "d1": -s0})
    assert facts.less_equal(d0, s2)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(dict.fromkeys(SIZES, rows)),
    st.fixed_dictionaries({name: trees(SIZES, 2) for name in DIMS}),
    st.lists(trees(SIZES + DIMS, 3), max_size=3),
    st.lists(trees(SIZES + DIMS, 5), min_size=1, max_size=4),
)
def test_no_counterexample_contradicts_a_proof(
    ranges: dict[str, Row], dims: dict[str, Tree], nonnegatives: list[Tree], asked: list[Tree]
) -> None:
    """What is proven without them holds at every one. That a search is saved may decide which questions come up in
    their own search, where they count as not proven: answers need not be the same, but are all right."""
    try:
        facts = Facts(ranges).with_dims({name: build(size) for name, size in dims.items()})
        for nonnegative in nonnegatives:
            facts.assume_nonnegative(build(nonnegative))
        exprs = [as_expr(0), *map(build, asked)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Counterexamples, "refute", lambda *_: False)
            proven = [facts.normal(b - a) for a in exprs for b in exprs if facts.less_equal(a, b)]
        assert not any(facts._counterexamples.refute(known, facts._conditions) for known in proven)
    except ZeroDivisionError:
        assume(False)


def test_a_counterexample_is_found_and_kept() -> None:
    """A product of sizes, a divisor and an order: what is false is refuted, also after more has been assumed."""
    facts = Facts({"a": Row(0, None), "b": Row(1, 512), "c": Row(0, None, 4)})
    facts.assume_nonnegative(Expr.symbol("a") - Expr.symbol("b"))
    a, b, c = (Expr.symbol(name) for name in "abc")
    assert facts.less_equal(b, a) and not facts.less_equal(a, b)
    models = [dict(model) for model in facts._counterexamples.found]
    assert models and all(model["a"] >= model["b"] >= 1 and model["b"] <= 512 for model in models)
    facts.assume_nonnegative(a - c)
    assert not facts.equal(a * b, c) and facts.less_equal(c, a)
    assert all(model["a"] >= model["c/4"] * 4 for model in facts._counterexamples.found)


def test_sizes_first_seen_are_a_counterexample() -> None:
    """Of guards that hardly any numbers satisfy: windows of 7 that fit after a stride of 4, and an even number of
    them. What is false for the sizes at hand, or for twice them, is not searched for a proof."""
    facts = Facts({"s0": Row(4, None, seen=224), "s1": Row(4, None, seen=448)})
    for size in (s0, s1):
        facts.assume_equal(size // 4 % 7, 0)
        facts.assume_equal(size // 28 % 2, 0)
    facts.assume_nonnegative(s0 // 4 - 50)
    assert not facts.equal(s0 // 28, s1 // 28) and not facts.less_equal(s1 // 8, s0 // 8)
    assert {"s0": 224, "s1": 448} in facts._counterexamples.found
    assert {"s0": 448, "s1": 896} in facts._counterexamples.copy().found
    assert all(len(expr.symbols) == 1 for expr in facts._bounds._lower)  # no bound of a difference was needed
    contradicted = Facts({"s0": Row(4, None, seen=224)})
    contradicted.assume_nonnegative(100 - s0)  # another call than the first
    assert contradicted.less_equal(s0, 100) and not contradicted.less_equal(s0, 99)


def test_bounds_are_shared_by_facts_of_equal_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is eliminated twice for the same ranges, and other ranges, also of what a dim ends at, have bounds of
    their own."""
    eliminated: list[Any] = []
    usual = Bounds._eliminate
    monkeypatch.setattr(Bounds, "_eliminate", lambda self, shown: eliminated.append(shown) or usual(self, shown))
    forget_shared_bounds()

    def bound(least: int, width: Expr | int) -> tuple[int | None, int]:
        eliminated.clear()
        facts = Facts({"s0": Row(least, None), "s1": Row(3, None)}).with_dims({"d0": width})
        return facts.bounds(s0 * s1 - d0)[0], len(eliminated)

    first, steps = bound(2, s0 * s1)
    assert first == 1 and steps > 0
    assert bound(2, s0 * s1) == (1, 0)
    assert bound(2, s0)[0] == 5 and bound(5, s0)[0] == 11 and bound(2, s0 * s1 + 4)[0] == -3
    assert bound(2, s0 * s1) == (1, 0)


def test_intervals_that_were_given_up_are_not_kept() -> None:
    """A bound that is asked for inside of a question that takes too long is unknown there, and found elsewhere."""
    forget_shared_bounds()
    half = (s0 - 4 * (s0 // 8)) // 8
    deep = (s0 - 4 * half - 4 * (s0 // 8)) // 8
    bounds = Bounds(lambda name: (Expr.const(4), None))
    for expr in (half - deep + s1 * deep % (half + 3) - deep * half, deep + half - s0 // 4, (deep * s1 - half) // s1):
        bounds.lower(expr)
    assert bounds._fuel < 0 and bounds._intervals
    for atom, kept in bounds._intervals.items():
        assert kept == Bounds(lambda name: (Expr.const(4), None))._found_interval(atom), atom


WIDTHS = (
    maximum(s0, s1),
    minimum(s0 + 1, s1),
    (s0 + s1) // 3 + 1,
    (s0 + 3) // 2,
    maximum(s0 - 4, 1),
    (2 * s0 + 1) // 3,
)
RELATIONS = (5 * s0 - d0, s0 - d0, s1 - s0, d0 - s0 + 10, d1 - d0)
QUESTIONS = (
    *(-d0, 1 - d0, 3 - 2 * d0, s0 - d0, s0 - d0 - 1, s1 - d0, s0 * s1 - d0 - 1, d1 - d0, s0 - d1),
    *((s0 + 1) // 2 - d0, maximum(s0, s1) - d0 - 1, s0 - d0 - d1 + s1),
)


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    """A size is rewritten while the range of its dim is open, and facts about that dim are asked: what was found then
    is not kept."""
    rng = random.Random(1)
    points = [dict(zip(("s0", "s1"), (i, j))) for i in range(1, 9) for j in range(1, 9)]
    for _ in range(60):
        width, height = rng.choice(WIDTHS), rng.choice(WIDTHS)
        relations, questions = rng.sample(RELATIONS, rng.randint(0, 2)), rng.sample(QUESTIONS, 5)

        def asked(*these: Expr, w: Expr = width, h: Expr = height, known: list[Expr] = relations) -> list[bool]:
            forget_shared_bounds()
            facts = Facts({"s0": Row(1, None), "s1": Row(1, None)}).with_dims({"d0": w, "d1": h})
            for relation in known:
                facts.assume_nonnegative(relation)
            return [facts.nonnegative(one) for one in these]

        answers = asked(*questions)
        assert answers == [asked(one)[0] for one in questions], (width, height, relations, questions)
        proven = [one for one, holds in zip(questions, answers) if holds]
        for point in points:
            for first in range(width.evaluate(point)):
                for second in range(height.evaluate(point)):
                    values = {**point, "d0": first, "d1": second}
                    if all(one.evaluate(values) >= 0 for one in relations):
                        assert all(one.evaluate(values) >= 0 for one in proven), (width, height, relations, values)
