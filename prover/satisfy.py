"""A point at which all facts and one condition hold, or that there is none, without looking at all facts.

Facts that are near the condition are solved for; the other symbols keep their values of a known point; facts that this
breaks join, and so on. (Counterexample-guided refinement: E. Clarke et al., CAV 2000.) No solution for some facts is
no solution for all; a point counts only when every fact was evaluated there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from symshape.prover.condition import Condition
from symshape.prover.presburger import Budget, Presburger
from symshape.prover.proof import Fact
from symshape.prover.search import Point, solve
from symshape.prover.state import State

# Components up to this many facts are solved at once; of larger ones, so many are taken to begin with.
_SMALL: Final = 48
_FIRST: Final = 16
_JOINING: Final = 8
_MAX_ROUNDS: Final = 6


@dataclass(frozen=True, slots=True)
class Found:
    """An answer: "sat" with a point of the whole state, "unsat" with the numbers of facts that suffice, or "unknown"."""

    kind: Literal["sat", "unsat", "unknown"]
    point: Point | None = None
    used: tuple[int, ...] = ()


def satisfy(state: State, goal: Condition, presburger: Presburger, budget: Budget) -> Found:
    """Whether the goal can hold together with all facts."""
    for point in state.points:
        if state.holds(goal, point):
            return Found("sat", _completed(point, goal))
    numbers, all_of_them = state.surroundings(goal.symbols, _SMALL)
    base = state.points[0] if state.points else {}
    if not all_of_them:
        near = _near(state, goal, base, presburger, budget) if state.points else None
        if near is not None:
            return Found("sat", near)
        numbers = numbers[:_FIRST]
    for _ in range(_MAX_ROUNDS):
        outcome = solve([goal, *(state.facts[number].condition for number in numbers)], presburger, budget)
        if outcome.kind == "unsat":
            return Found("unsat", used=tuple(numbers))
        if outcome.point is None:
            return Found("unknown")
        solved = outcome.point.keys()
        point = {**base, **outcome.point}
        broken = state.violated(point, solved if state.points else state.by_symbol)
        if not broken:
            return Found("sat", _completed(point, goal))
        joining = state.nearest([number for number in broken if number not in numbers], solved)
        numbers = [*numbers, *joining[:_JOINING]]
    return Found("unknown")


def extended(state: State, fact: Fact, presburger: Presburger, budget: Budget) -> State | Found:
    """The state with one fact more; or, when they cannot all hold, which facts contradict it."""
    points = [point for point in state.points if state.holds(fact.condition, point)]
    if not points:
        found = satisfy(state, fact.condition, presburger, budget)
        if found.kind == "unsat":
            return found
        points = [] if found.point is None else [found.point]
    return state.with_fact(fact, points)


def _near(state: State, goal: Condition, base: Point, presburger: Presburger, budget: Budget) -> Point | None:
    """A point that differs from the known one only in the goal's own symbols."""
    names = goal.symbols
    fixed: Mapping[str, int] = {name: value for name, value in base.items() if name not in names}
    try:
        conditions = [state.facts[number].condition.substitute(fixed) for number in state.touching(names)]
    except ZeroDivisionError:
        return None
    outcome = solve([goal, *dict.fromkeys(conditions)], presburger, budget)
    if outcome.point is None:
        return None
    point = {**base, **outcome.point}
    return None if state.violated(point, names) else _completed(point, goal)


def _completed(point: Point, goal: Condition) -> Point:
    missing = goal.symbols - point.keys()
    return {**point, **dict.fromkeys(missing, 1)} if missing else point
