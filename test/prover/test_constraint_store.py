"""The constraint store: its answers, their reasons and witnesses, minimised lists, contradictions, checkpoints."""

from __future__ import annotations

import doctest
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from constraint_sets import ConstraintSet, build, guard_set, points_of, random_sets, to_z3, truth
from torch.utils._sympy import functions as torch_sympy

import symshape
from symshape.errors import ContradictionError
from symshape.prover.numbers.condition import FALSE, all_of, any_of, at_least, differs, equals, greater, negation
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum
from symshape.prover.numbers.facts import Row
from symshape.prover.solver.condition_store import ConditionStore
from symshape.prover.solver.presburger import Limits

ROOT = Path(__file__).resolve().parents[2]

x, y, z = map(Expr.symbol, "xyz")


def store_of(**rows: Row) -> ConditionStore:
    store = ConditionStore()
    for name, row in rows.items():
        store.symbol(name, row)
    return store


def sizes() -> ConditionStore:
    return store_of(x=Row(2, None), y=Row(0, 4096, 8), z=Row(1, None))


# The public class, in sympy.


def model() -> tuple[Any, Any, Any]:
    store = symshape.ConstraintStore()
    s0, s1 = store.symbol("s0", min=2), store.symbol("s1", min=0, max=4096, divisor=8)
    store.assume(sympy.Eq(s1, 4 * s0), origin="model.py:31")
    return store, s0, s1


def test_importing_symshape_imports_neither_sympy_nor_islpy() -> None:
    code = "import sys, symshape; sys.exit(any(m in sys.modules for m in ('sympy', 'islpy', 'torch')))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_each_status() -> None:
    store, s0, s1 = model()
    proven = store.prove(sympy.Eq(sympy.Mod(s0, 2), 0))
    assert proven.status == "proven"
    assert {(reason.text, reason.origin) for reason in proven.reasons} == {
        ("s1 % 8 == 0", "symbol s1"),
        ("4*s0 == s1", "model.py:31"),
    }
    assert store.prove(s0 > 1024).status == "refuted"
    contingent = store.prove(s0 > 4)
    assert contingent.status == "contingent" and contingent.reasons == ()
    for witness, expected in zip(contingent.witnesses, (True, False), strict=True):
        assert witness[s1] == 4 * witness[s0] and witness[s1] % 8 == 0 and witness[s0] >= 2
        assert bool((s0 > 4).subs(witness)) is expected
    assert "contingent" in repr(contingent)


def test_sympy_and_pytorch_functions() -> None:
    store, s0, s1 = model()
    for true in (
        sympy.Eq(sympy.floor(s1 / 4), s0),
        sympy.Eq(sympy.ceiling((s1 - 3) / 4), s0),
        sympy.Ge(sympy.Max(s0, s1), 8),
        sympy.Eq(sympy.Min(s0, s1), s0),
        sympy.Implies(sympy.Eq(s0 % 3, 0), sympy.Eq(s1 % 12, 0)),
        sympy.Not(sympy.Or(s0 < 2, s1 > 4096)),
        sympy.Equivalent(s0 >= 9, s1 >= 36),
        sympy.Eq(torch_sympy.FloorDiv(s1, s0), 4),
        sympy.Eq(torch_sympy.CeilDiv(s1, 4), s0),
        sympy.Eq(torch_sympy.Mod(s1, 8), 0),
        sympy.Eq(torch_sympy.PythonMod(s0 - s1, 2), 0),
        sympy.Eq(torch_sympy.Max(s0, 1), s0),
    ):
        assert store.prove(true).status == "proven", true
        assert store.prove(sympy.Not(true)).status == "refuted", true


def test_undeclared_symbols_have_what_sympy_says_of_them() -> None:
    store = symshape.ConstraintStore()
    positive = sympy.Symbol("s7", integer=True, positive=True)
    assert store.prove(positive * positive >= 1).status == "proven"
    anything = sympy.Symbol("u0", integer=True)
    witnesses = store.prove(anything >= -5).witnesses
    assert witnesses[0][anything] >= -5 > witnesses[1][anything]
    with pytest.raises(symshape.SymshapeError):
        store.prove(sympy.Symbol("r", real=True) > 1)
    with pytest.raises(symshape.SymshapeError, match="must not contain"):
        store.assume(sympy.Symbol("s0//8", integer=True) > 1)
    with pytest.raises(ValueError, match="at least 1"):
        store.symbol("s8", divisor=0)


def test_minimise_in_sympy() -> None:
    store, s0, s1 = model()
    kept = store.minimise([(s0 >= 4, "a.py:1"), (s1 >= 16, "a.py:2"), s0 >= 3])
    assert [(item.expr, item.origins) for item in kept] == [(s0 >= 4, ("a.py:1", s0 >= 3, "a.py:2"))]
    (both,) = store.minimise([sympy.Eq(s0 % 4, 0), sympy.Eq(s0 % 6, 0)])
    assert both.expr == sympy.Eq(sympy.Mod(s0, 12), 0) and len(both.origins) == 2
    assert store.minimise([sympy.true, s0 >= 2]) == []
    (false,) = store.minimise([s0 >= 4, s0 < 3])
    assert false.expr == sympy.false and len(false.origins) == 2


# Answers of each tier.


@pytest.mark.parametrize(
    "condition",
    [
        equals(y % 4, 0),
        at_least(x * z, x),
        at_least(x * x, 2 * x),
        greater(x * x, 2 * x - 2),
        equals((x * z) % x, 0),
        equals((x * z + z) // (x + 1), z),
        at_least(x * y * z, 0),
        any_of(equals(x, z), greater(x, z), greater(z, x)),
        equals(maximum(x, z) + minimum(x, z), x + z),
        at_least(ceildiv(y, 16) * 16, y),
        differs(2 * x, 2 * z + 1),
        at_least(4096, y // z),
        negation(all_of(greater(x, z), greater(z, x))),
    ],
)
def test_proven(condition: Any) -> None:
    assert sizes().prove(condition).status == "proven"
    assert sizes().prove(negation(condition)).status == "refuted"


def test_products_follow_their_factors() -> None:
    store = sizes()
    store.assume(at_least(z, x), "z >= x")
    assert store.prove(at_least(y * z, x * y)).status == "proven"
    assert store.prove(at_least(x * z, x * x)).status == "proven"
    proof = store.prove(greater(y * z, x * y))
    assert proof.status == "contingent"
    store.assume(equals(y * z, x * y + y), "product")
    store.assume(at_least(y, 1), "positive")
    proof = store.prove(equals(z, x + 1))
    assert proof.status == "proven"
    assert {reason.origin for reason in proof.reasons} >= {"product"}


def test_common_factors_that_are_not_zero_say_nothing() -> None:
    """All of these are asked when transformers are compiled."""
    s0, s1, s2, s3 = (Expr.symbol(f"s{i}") for i in range(4))
    store = ConditionStore()
    for name, row in (("s0", Row(2, 128)), ("s1", Row(1, None)), ("s2", Row(0, None)), ("s3", Row(None, -1))):
        store.symbol(name, row)
    refuted = store.prove(equals(4 * s0 * s0 * s1, s0 * s1))
    assert refuted.status == "refuted"
    assert {reason.text for reason in refuted.reasons} <= {"s0 >= 2", "s0 <= 128", "s1 >= 1"}
    for contingent in (
        equals(s0 * s0 * s1, 32 * s0 * s1),
        equals(s0 * (s2 % s1), 0),
        at_least(s1 * s2, 4 * s1),
        at_least(s3 * s2, 4 * s3),
        equals(s3 * s2, 4 * s3),
        any_of(equals(s1 * s2, 4 * s1), equals(s1 * s2, 5 * s1)),
    ):
        assert store.prove(contingent).status == "contingent", contingent
    assert store.prove(at_least(s1 * s2, 0)).status == "proven"
    assert store.prove(at_least(s3 * s2, 0)).status == "contingent"  # it is s2 <= 0
    assert store.prove(equals(s2 * s1, s2 * 7)).status == "contingent"  # s2 may be 0
    with store.checkpoint():
        store.assume(at_least(s1, 8))
        assert store.prove(equals(s2 * s1, s2 * 7)).status == "contingent"
        store.assume(at_least(s2, 1))
        assert store.prove(equals(s2 * s1, s2 * 7)).status == "refuted"


def test_numbers_are_unbounded() -> None:
    large = 2**63
    store = store_of(x=Row(large - 5, large + 5), y=Row(-large, -1), z=Row(None, None))
    assert store.prove(greater(x * x, 2**126 - 2**67)).status == "proven"
    assert store.prove(greater(x, large + 5)).status == "refuted"
    assert store.prove(at_least(0, x * y)).status == "proven"
    for condition in (equals(x % 7, 0), at_least(x + y, 0), at_least(z, 2**200), equals(z, -(2**70))):
        proof = store.prove(condition)
        assert proof.status == "contingent"
        for witness, expected in zip(proof.witnesses, (True, False), strict=True):
            assert large - 5 <= witness["x"] <= large + 5 and -large <= witness["y"] <= -1
            assert condition.evaluate(witness) is expected


def test_ranges_do_not_grow_without_end() -> None:
    """The least value of x, once it is above 1, is squared and more in every round of propagation."""
    store = store_of(x=Row(0, None))
    store.assume(equals(x % 2, 1))
    assert store.prove(at_least(x * x * x + x * x * (2 * x % 3), x * x * x * x)).status == "contingent"
    far = store_of(x=Row(10**5000, None))  # longer than Python writes as text
    assert far.prove(at_least(x, 10**5000)).status == "proven"
    assert far.prove(at_least(2 * x * y, 3 * x + 7 * y * y)).status in ("contingent", "unknown")


def test_a_spent_budget_is_unknown() -> None:
    store = ConditionStore(Limits(operations=0, sets=0, reason_operations=0, reason_sets=0))
    for name in "xyz":
        store.symbol(name, Row(1, 1000))
    store.assume(equals((x * y) % 7, 3))
    assert store.prove(equals((x * x * y) % 11, 5)).status == "unknown"


def test_reasons_are_minimal() -> None:
    store = store_of(x=Row(0, 100), y=Row(0, 100), z=Row(0, 100))
    store.assume(at_least(y, x), "first")
    store.assume(at_least(z, y + 3), "second")
    store.assume(at_least(z + x, y), "beside")
    reasons = store.prove(at_least(z, x + 2)).reasons
    assert [reason.origin for reason in reasons] == ["first", "second"]
    assert str(reasons[0]) == "y >= x  [first]"


# Contradictions and checkpoints.


def test_reasons_have_to_do_with_the_question() -> None:
    """Even where the budget ends before any fact could be left out."""
    store = ConditionStore(Limits(reason_sets=0))
    sizes = [store.symbol(f"s{number}", Row(1, 512)) for number in range(12)]
    proof = store.prove(at_least(sizes[0] * sizes[1] + sizes[4] * (sizes[5] % sizes[6]), 1))
    assert proof.status == "proven"
    assert {reason.origin for reason in proof.reasons} == {f"symbol s{number}" for number in (0, 1, 4, 5, 6)}


def test_contradictions_name_a_smallest_set() -> None:
    store = sizes()
    store.assume(at_least(z, x), "a.py:1")
    store.assume(at_least(100, y), "a.py:2")
    store.assume(at_least(50, z), "a.py:3")
    before = store.facts
    with pytest.raises(ContradictionError) as caught:
        store.assume(greater(x, 50), "a.py:4")
    assert [reason.origin for reason in caught.value.reasons] == ["a.py:1", "a.py:3", "a.py:4"]
    assert caught.value.where == "a.py:4" and "x >= 51  [a.py:4]" in str(caught.value)
    assert store.facts == before
    with pytest.raises(ContradictionError):
        store.assume(FALSE, "never")
    with pytest.raises(ContradictionError):
        store.symbol("empty", Row(5, 4))
    assert store.facts == before


def test_checkpoint_and_rollback() -> None:
    store = sizes()
    condition = greater(x, 5)
    with store.checkpoint():
        store.assume(at_least(x, 10))
        with store.checkpoint():
            store.assume(equals(z, 3 * x))
            assert store.prove(at_least(z, 30)).status == "proven"
        assert store.prove(at_least(z, 30)).status == "contingent"
        assert store.prove(condition).status == "proven"
    assert store.prove(condition).status == "contingent"
    mark = store.checkpoint()
    store.assume(equals(x, 4))
    assert store.prove(condition).status == "refuted"
    store.rollback(mark)
    assert store.prove(condition).status == "contingent"


def test_checkpoints_cost_nothing_at_many_facts() -> None:
    """Beside a store with a hundredth of the facts, by turns."""
    stores = {count: ConditionStore() for count in (10, 1000)}
    for count, store in stores.items():
        for number in range(count):
            store.assume(at_least(Expr.symbol(f"s{number % 64}"), -number))
        assert len(store.facts) == count
    seconds: dict[int, list[float]] = {count: [] for count in stores}
    for _ in range(200):
        for count, store in stores.items():
            start = time.perf_counter()
            store.rollback(store.checkpoint())
            seconds[count].append(time.perf_counter() - start)
    assert statistics.median(seconds[1000]) < 10 * statistics.median(seconds[10])


# Minimised lists.


def test_minimise_merges_and_covers() -> None:
    store = store_of(x=Row(0, 100), y=Row(0, 100), z=Row(0, 100))
    store.assume(equals(x, 2 * y), "fact")

    def minimised(*conditions: Any) -> list[tuple[str, tuple[Any, ...]]]:
        items = [(condition, (number,)) for number, condition in enumerate(conditions)]
        return [(str(item.condition), item.origins) for item in store.minimise(items)]

    assert minimised(at_least(x, 4), at_least(y, 2), at_least(x + y, 6)) == [("x >= 4", (0, 1, 2))]
    assert minimised(at_least(z, y), at_least(y, z), equals(x, 2 * z)) == [("y == z", (0, 1, 2))]
    assert minimised(equals(z % 4, 0), equals(z % 6, 0), equals(z % 3, 0)) == [("z % 12 == 0", (0, 1, 2))]
    assert [text for text, _ in minimised(at_least(z, 1), any_of(equals(z, 0), at_least(y, 7)))] == ["z >= 1", "y >= 7"]
    assert [text for text, _ in minimised(all_of(at_least(z, 4), at_least(y, 3)), at_least(y, 3))] == [
        "y >= 3",
        "z >= 4",
    ]
    assert minimised(equals(z % 4, 0), equals(z % 4, 1)) == [("False", (0, 1))]


def test_minimise_does_not_round_an_equation() -> None:
    """x >= 81 is y >= 27 where x == 3*y + 1, and 3*y <= 81 is y <= 27; but x == 81 never holds."""
    store = ConditionStore()
    store.assume(equals(x, 3 * y + 1))
    kept = store.minimise([(at_least(x, 81), ()), (at_least(81, 3 * y), ())])
    for value in range(20, 35):
        point = {"x": 3 * value + 1, "y": value}
        assert all(item.condition.evaluate(point) for item in kept) == (value == 27)


@pytest.mark.long
def test_minimised_lists_are_equivalent_for_z3() -> None:
    import z3

    for drawn in random_sets(11, 200):
        store = store_of(**{name: Row(*ends) for name, ends in drawn.box.items()})
        facts, items = drawn.facts[:1], [*drawn.facts[1:], *drawn.goals]
        try:
            store.assume(build(facts[0]))
        except ContradictionError:
            continue
        kept = store.minimise([(build(item), (number,)) for number, item in enumerate(items)])
        assert len(kept) <= len(items)
        points = points_of(drawn.box)
        wanted = np.logical_and.reduce([truth(item, points) for item in items])
        allowed = truth(facts[0], points)
        rows = [dict(zip(points, (int(v) for v in row), strict=True)) for row in zip(*points.values(), strict=True)]
        for row in random.Random(1).sample(range(len(rows)), min(200, len(rows))):
            if allowed[row]:
                assert all(item.condition.evaluate(rows[row]) for item in kept) == wanted[row], drawn
        solver = z3.Solver()
        solver.set("timeout", 50)
        solver.add(*(z3.And(z3.Int(name) >= low, z3.Int(name) <= high) for name, (low, high) in drawn.box.items()))
        solver.add(to_z3(facts[0], z3))
        ours = z3.And(*(formula(item.condition, z3) for item in kept))
        solver.add(ours != z3.And(*(to_z3(item, z3) for item in items)))
        assert solver.check() != z3.sat, drawn


def formula(condition: Any, z3: Any) -> Any:
    """A condition for z3, through its Python source."""
    names = {name: z3.Int(name) for name in condition.symbols}
    if condition.kind in ("and", "or"):
        parts = [formula(operand, z3) for operand in condition.operands]
        return z3.And(*parts) if condition.kind == "and" else z3.Or(*parts)
    if condition.as_bool() is not None:
        return z3.BoolVal(condition.as_bool())
    value = expression(condition.expr, names, z3)
    return {"eq": value == 0, "ne": value != 0, "ge": value >= 0}[condition.kind]


def expression(expr: Expr, names: Any, z3: Any) -> Any:
    total = z3.IntVal(0)
    for coefficient, atoms in expr.terms:
        term = z3.IntVal(coefficient)
        for atom in atoms:
            if hasattr(atom, "name"):
                term = term * names[atom.name]
                continue
            args = [expression(arg, names, z3) for arg in atom.args]
            table = {
                "floordiv": lambda a, b: a / b,
                "mod": lambda a, b: a % b,
                "max": lambda a, b: z3.If(a >= b, a, b),
                "min": lambda a, b: z3.If(a <= b, a, b),
            }
            term = term * table[atom.kind](*args)
        total = total + term
    return total


# Random sets.


def test_random_sets_against_brute_force() -> None:
    answers = {"proven": 0, "refuted": 0, "contingent": 0, "unknown": 0}
    for drawn in random_sets(7, 300):
        for status, expected in ask(drawn):
            answers[status] += 1
            assert status in (expected, "unknown"), drawn
    assert answers["unknown"] <= 0.05 * sum(answers.values())


def ask(drawn: ConstraintSet) -> list[tuple[str, str]]:
    """(answer, truth) of each goal; witnesses are looked at here."""
    points = points_of(drawn.box)
    allowed = np.logical_and.reduce([truth(fact, points) for fact in drawn.facts])
    store = store_of(**{name: Row(*ends) for name, ends in drawn.box.items()})
    try:
        for fact in drawn.facts:
            store.assume(build(fact))
    except ContradictionError:
        assert not allowed.any(), drawn
        return []
    results = []
    for goal in drawn.goals if allowed.any() else ():
        values = truth(goal, points)[allowed]
        proof = store.prove(build(goal))
        for witness, expected in zip(proof.witnesses, (True, False), strict=False):
            at = {name: np.array([witness[name]]) for name in drawn.box}
            assert all(truth(fact, at)[0] for fact in drawn.facts) and truth(goal, at)[0] == expected
        results.append((proof.status, "proven" if values.all() else "contingent" if values.any() else "refuted"))
    return results


def test_many_constraints_are_minimised_without_losing_one() -> None:
    values, trees = guard_set(random.Random(3), symbols=24, count=150)
    conditions = [build(tree) for tree in trees]
    store = ConditionStore()
    for name in values:
        store.symbol(name, Row(2, None))
    kept = store.minimise([(condition, (number,)) for number, condition in enumerate(conditions)])
    assert len(kept) < 120
    again = ConditionStore()
    for name in values:
        again.symbol(name, Row(2, None))
    for item in kept:
        again.assume(item.condition)
    statuses = [again.prove(condition).status for condition in random.Random(0).sample(conditions, 40)]
    assert not {"refuted", "contingent"} & set(statuses) and statuses.count("proven") >= 36


def test_the_examples_of_the_documentation() -> None:
    results = doctest.testfile(str(ROOT / "docs" / "constraints.md"), module_relative=False)
    assert results.attempted > 0 and results.failed == 0
