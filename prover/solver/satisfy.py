"""Decides whether a condition is satisfiable together with all facts; facts are added only as points violate them.

The condition is solved with the entries near it; other symbols keep their values of a known point; entries that this
violates are added, and so on. (Counterexample-guided refinement: E. Clarke et al., CAV 2000.) No solution under some
facts implies none under all; a point counts only if every entry that it could violate was evaluated there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from symshape.prover.numbers.condition import TRUE, Condition
from symshape.prover.numbers.merge import Merged, merge
from symshape.prover.solver.local_search import moved, moved_widely, one_moved, some_moved
from symshape.prover.solver.presburger import Budget, Presburger
from symshape.prover.solver.proof import Fact
from symshape.prover.solver.search import Outcome, Point, solve
from symshape.prover.solver.store_state import Entry, Numbers, State

# Components up to this many entries are solved at once; of larger ones, so many are taken to begin with.
_SMALL: Final = 40
_FIRST: Final = 12
_JOINING: Final = 8
_MAX_ROUNDS: Final = 6


@dataclass(frozen=True, slots=True)
class Found:
    """The result: "sat" with a point of the free symbols, "unsat" with the numbers of facts that suffice, or
    "unknown"."""

    kind: Literal["sat", "unsat", "unknown"]
    point: Point | None = None
    used: Numbers = frozenset()


def satisfy(state: State, goal: Condition, presburger: Presburger, budget: Budget, *, thorough: bool = True) -> Found:
    """Whether the goal is satisfiable together with all facts; without ``thorough`` less work is spent on finding a
    point."""
    reduced = state.reduce(goal)
    whole = Entry.of(reduced.condition)
    for point in state.points:
        if whole.holds(point):
            return Found("sat", point)
    base = state.points[0] if state.points else None
    found = _refine(state, reduced.condition, base, (), presburger, budget, thorough)
    return Found("unsat", used=found.used | reduced.used) if found.kind == "unsat" else found


def extended(state: State, fact: Fact, presburger: Presburger, budget: Budget) -> State | Found:
    """The state with one more fact; or, if they contradict, the result with the contradicting facts (the new one is
    last)."""
    after = state.with_fact(fact)
    contradicting = after.contradiction()
    if contradicting is not None:
        return Found("unsat", used=contradicting)
    fresh = range(len(state.entries), len(after.entries))
    kept = [point for point in state.points if all(after.entries[position].holds(point) for position in fresh)]
    if kept:
        return after.with_points(kept)
    base = state.points[0] if state.points else None
    broken = [position for position in fresh if base is None or not after.entries[position].holds(base)]
    found = _refine(after, TRUE, base, broken, presburger, budget, state.is_search_due)
    if found.kind == "unsat":
        return found
    if found.point is not None:
        return after.with_points([found.point])
    return after.without_search() if state.is_search_due else after


def _refine(
    state: State,
    goal: Condition,
    base: Point | None,
    broken: Sequence[int],
    presburger: Presburger,
    budget: Budget,
    thorough: bool,
) -> Found:
    """Solves the goal with all entries, of which ``base`` violates only those named (without a base: any may be
    violated)."""
    names = goal.symbols.union(*(state.entries[position].condition.symbols for position in broken))
    positions, all_of_them = state.surroundings(names, _SMALL)
    far = base is not None and not all_of_them
    if base is not None and far:
        near = one_moved(state, goal, base, names)
        if near is not None:
            return Found("sat", near)
    if not all_of_them:
        if Entry.of(goal).slopes is not None:  # products would cost much more than they are likely to say
            positions = [position for position in positions if state.entries[position].slopes is not None]
        positions = list(dict.fromkeys((*(broken if base is not None else ()), *positions[:_FIRST])))
    anchored = base is not None or all_of_them
    for attempt in range(_MAX_ROUNDS if anchored else 1):  # without a point to start from, only for a contradiction
        outcome = _solve(state, goal, positions, presburger, budget)
        if outcome.kind == "unsat":
            return Found("unsat", used=frozenset[int]().union(*(state.entries[p].used for p in positions)))
        if base is not None and far and attempt == 0:  # not before: most queries of minimisation are unsatisfiable
            near = some_moved(state, goal, base, names, presburger, budget)
            if near is not None:
                return Found("sat", near)
        if outcome.point is None or not anchored:
            break
        changed = outcome.point.keys()
        point = {**(base or {}), **outcome.point}
        again = state.violated(point, changed)
        if not again and (base is not None or not state.violated(point, state.by_symbol)):
            return Found("sat", point)
        joining = state.nearest([position for position in again if position not in positions], changed)
        positions = [*positions, *joining[:_JOINING]]
    if all_of_them or not thorough:
        return Found("unknown")
    wide = None if base is None else moved_widely(state, goal, base, names, presburger, budget)
    point = wide or _layered(state, goal, presburger, Budget(budget.all_operations, budget.all_sets)) or {}
    return Found("sat", point) if point else Found("unknown")


def _layered(state: State, goal: Condition, presburger: Presburger, budget: Budget) -> Point | None:
    """A point that satisfies the linear entries, then changed, a few symbols at a time, to satisfy the others."""
    every = state.touching(state.by_symbol)
    linear = [position for position in every if state.entries[position].slopes is not None]
    point = _solve(state, goal, linear, presburger, budget).point
    while point is not None:
        broken = state.violated(point, state.by_symbol)
        if not broken:
            return point
        names = state.entries[broken[0]].condition.symbols
        point = moved(state, goal, point, names, presburger, budget) or moved_widely(
            state, goal, point, names, presburger, budget
        )
    return None


def _solve(state: State, goal: Condition, positions: Iterable[int], presburger: Presburger, budget: Budget) -> Outcome:
    merged = merge(Merged(state.entries[position].condition) for position in positions)
    return solve([goal, *(item.condition for item in merged)], presburger, budget)
