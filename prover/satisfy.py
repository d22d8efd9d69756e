"""A point at which all facts and one condition hold, or that there is none, without looking at all facts.

Entries that are near the condition are solved for; the other symbols keep their values of a known point; entries that
this breaks join, and so on. (Counterexample-guided refinement: E. Clarke et al., CAV 2000.) No solution for some facts
is no solution for all; a point counts only when every entry that it could break was evaluated there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final, Literal

from symshape.prover.condition import TRUE, Condition
from symshape.prover.encode import is_linear
from symshape.prover.merge import Merged, merge
from symshape.prover.presburger import Budget, Presburger
from symshape.prover.proof import Fact
from symshape.prover.search import Outcome, Point, solve
from symshape.prover.state import Numbers, State

# Components up to this many entries are solved at once; of larger ones, so many are taken to begin with.
_SMALL: Final = 40
_FIRST: Final = 12
_JOINING: Final = 8
_MAX_ROUNDS: Final = 6
_MAX_UNANCHORED: Final = 2
# Symbols that may change besides those that have to, in steps.
_MORE: Final = (2, 6)


@dataclass(frozen=True, slots=True)
class Found:
    """An answer: "sat" with a point of free symbols, "unsat" with the numbers of facts that suffice, or "unknown"."""

    kind: Literal["sat", "unsat", "unknown"]
    point: Point | None = None
    used: Numbers = frozenset()


def satisfy(state: State, goal: Condition, presburger: Presburger, budget: Budget) -> Found:
    """Whether the goal can hold together with all facts."""
    reduced = state.reduce(goal)
    for point in state.points:
        if state.holds(reduced.condition, point):
            return Found("sat", point)
    base = state.points[0] if state.points else None
    found = _refine(state, reduced.condition, base, (), presburger, budget)
    return Found("unsat", used=found.used | reduced.used) if found.kind == "unsat" else found


def extended(state: State, fact: Fact, presburger: Presburger, budget: Budget) -> State | Found:
    """The state with one fact more; or, when they cannot all hold, the facts (the new one is the last) that say so."""
    after = state.with_fact(fact)
    contradicting = after.contradiction()
    if contradicting is not None:
        return Found("unsat", used=contradicting)
    fresh = range(len(state.entries), len(after.entries))
    base: Point | None = None
    broken: list[int] = list(fresh)
    for point in state.points:
        base = point
        broken = [position for position in fresh if not after.holds(after.entries[position].condition, point)]
        if not broken:
            return after.with_points([point])
    found = _refine(after, TRUE, base, broken, presburger, budget)
    if found.kind == "unsat":
        return found
    if found.point is not None:
        return after.with_points([found.point])
    return after.without_search() if state.is_search_due else after


def _refine(
    state: State, goal: Condition, base: Point | None, broken: Sequence[int], presburger: Presburger, budget: Budget
) -> Found:
    """The goal with all entries, of which the base breaks only those named (no base: any of them may be broken)."""
    names = goal.symbols.union(*(state.entries[position].condition.symbols for position in broken))
    positions, all_of_them = state.surroundings(names, _SMALL)
    if not all_of_them:
        for free in _neighbourhoods(state, names) if base is not None else ():
            near = _near(state, goal, base, free, presburger, budget)
            if near is not None:
                return Found("sat", near)
        positions = list(dict.fromkeys((*broken, *positions[:_FIRST])))
    for _ in range(_MAX_ROUNDS if base is not None else _MAX_UNANCHORED):
        outcome = _solve(state, goal, positions, presburger, budget)
        if outcome.kind == "unsat":
            return Found("unsat", used=frozenset[int]().union(*(state.entries[p].used for p in positions)))
        if outcome.point is None:
            break
        changed = outcome.point.keys()
        point = {**(base or {}), **outcome.point}
        again = state.violated(point, changed)
        if not again and (base is not None or not state.violated(point, state.by_symbol)):
            return Found("sat", point)
        joining = state.nearest([position for position in again if position not in positions], changed)
        positions = [*positions, *joining[:_JOINING]]
    if all_of_them or not state.is_search_due:
        return Found("unknown")
    point = _layered(state, goal, presburger, Budget(budget.all_operations, budget.all_sets))
    return Found("unknown") if point is None else Found("sat", point)


def _layered(state: State, goal: Condition, presburger: Presburger, budget: Budget) -> Point | None:
    """A point of the linear entries first, then moved, a few symbols at a time, to where the others hold as well."""
    every = state.touching(state.by_symbol)
    linear = [p for p in every if state.entries[p].condition.kind == "ge" and is_linear(state.entries[p].condition.expr)]
    point = _solve(state, goal, linear, presburger, budget).point
    tried: set[int] = set()
    while point is not None:
        broken = [position for position in state.violated(point, state.by_symbol) if position not in tried]
        if not broken:
            return None if tried else point
        tried.add(broken[0])
        names = state.entries[broken[0]].condition.symbols
        moved = (_near(state, goal, point, free, presburger, budget) for free in _neighbourhoods(state, names))
        after = next((m for m in moved if m is not None), None)
        if after is not None:
            tried.discard(broken[0])
            point = after
    return None


def _solve(
    state: State, goal: Condition, positions: Iterable[int], presburger: Presburger, budget: Budget
) -> Outcome:
    merged = merge(Merged(state.entries[position].condition) for position in positions)
    return solve([goal, *(item.condition for item in merged)], presburger, budget)


def _neighbourhoods(state: State, names: Set[str]) -> Iterator[Set[str]]:
    """The names, and with them ever more of the symbols that they share entries with most."""
    yield names
    for more in _MORE:
        shared = Counter(
            other for position in state.touching(names) for other in state.entries[position].condition.symbols
        )
        others = sorted((other for other in shared if other not in names), key=lambda other: (-shared[other], other))
        names = names | set(others[:more])
        yield names


def _near(
    state: State, goal: Condition, base: Point, names: Set[str], presburger: Presburger, budget: Budget
) -> Point | None:
    """A point that differs from the base only in the named symbols."""
    touching = [goal, *(state.entries[position].condition for position in state.touching(names))]
    others = frozenset[str]().union(*(condition.symbols for condition in touching)) - names
    fixed = {name: base.get(name, 1) for name in others}
    try:
        merged = merge(Merged(condition.substitute(fixed)) for condition in touching)
    except ZeroDivisionError:
        return None
    outcome = solve([item.condition for item in merged], presburger, budget)
    if outcome.point is None:
        return None
    point = {**base, **outcome.point}
    return None if state.violated(point, names) else point
