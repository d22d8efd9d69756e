"""Local search: changes a few symbols of a known satisfying point so that one more condition holds. Cheap on large
stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Final

from symshape.prover.numbers.condition import Condition, at_least
from symshape.prover.numbers.expr import Expr
from symshape.prover.solver.presburger import Budget, Presburger
from symshape.prover.solver.search import Point, solve
from symshape.prover.solver.store_state import Entry, State

# Symbols that may move besides those that have to, in steps.
_MORE: Final = (2, 6)
# Values of a single symbol that are tried, nearest first: enough to get past a few that are excluded.
_STEPS: Final = (0, 1, -1, 2, -2, 3, -3)


def moved(
    state: State, goal: Condition, base: Point, names: Set[str], presburger: Presburger, budget: Budget
) -> Point | None:
    """A point at which all entries and the goal hold, which differs from ``base`` in some of the named symbols; else
    None.

    All entries that mention none of the names must hold at ``base``.
    """
    return one_moved(state, goal, base, names) or some_moved(state, goal, base, names, presburger, budget)


def one_moved(state: State, goal: Condition, base: Point, names: Set[str]) -> Point | None:
    """``moved`` by changing exactly one of the named symbols."""
    whole = Entry.of(goal)
    for name in sorted(names):
        point = _one_moved(state, whole, base, name)
        if point is not None and not state.violated(point, names):
            return point
    return None


def moved_widely(
    state: State, goal: Condition, base: Point, names: Set[str], presburger: Presburger, budget: Budget
) -> Point | None:
    """``moved`` by changing further symbols too: first those that share the most entries with the names."""
    for free in _neighbourhoods(state, names):
        point = some_moved(state, goal, base, free, presburger, budget)
        if point is not None:
            return point
    return None


def _neighbourhoods(state: State, names: Set[str]) -> Iterator[Set[str]]:
    for more in _MORE:
        shared = Counter(
            other for position in state.touching(names) for other in state.entries[position].condition.symbols
        )
        others = sorted((other for other in shared if other not in names), key=lambda other: (-shared[other], other))
        names = names | set(others[:more])
        yield names


def _one_moved(state: State, goal: Entry, base: Point, name: str) -> Point | None:
    """``moved`` by changing this symbol: its range follows from the linear entries, and a few values in it are
    tried."""
    entries = [goal, *(state.entries[position] for position in state.by_symbol.get(name, ()))]
    value = base.get(name, 1)
    low: int | None = None
    high: int | None = None
    for entry in entries:
        slope = entry.slopes.get(name, 0) if entry.slopes is not None else 0
        if slope == 0:
            continue
        rest = entry.sum_at(base) - slope * value  # slope*x + rest >= 0
        if slope > 0:
            least = -(rest // slope)
            low = least if low is None else max(low, least)
        else:
            most = rest // -slope
            high = most if high is None else min(high, most)
    if low is not None and high is not None and low > high:
        return None
    start = value if low is None or low <= value else low
    start = start if high is None or start <= high else high
    for candidate in dict.fromkeys((*(start + step for step in _STEPS), low, high)):
        if candidate is None or (low is not None and candidate < low) or (high is not None and candidate > high):
            continue
        point = {**base, name: candidate}
        if all(entry.holds(point) for entry in entries):
            return point
    return None


def some_moved(
    state: State, goal: Condition, base: Point, names: Set[str], presburger: Presburger, budget: Budget
) -> Point | None:
    """``moved`` by changing the named symbols only, with values that isl finds."""
    fixed = _fixed([Entry.of(goal), *(state.entries[position] for position in state.touching(names))], base, names)
    if fixed is None or any(condition.kind == "false" for condition in fixed):
        return None
    outcome = solve(fixed, presburger, budget)
    if outcome.point is None:
        return None
    point = {**base, **outcome.point}
    return None if state.violated(point, names) else point


def _fixed(entries: Iterable[Entry], base: Point, names: Set[str]) -> list[Condition] | None:
    """The entries as conditions on the named symbols alone, all other symbols as in ``base``; None if one has no value
    there.

    Of parallel linear inequalities only the tightest is kept.
    """
    tightest: dict[tuple[tuple[str, int], ...], int] = {}
    result: list[Condition] = []
    for entry in entries:
        if entry.slopes is None:
            others = {name: base.get(name, 1) for name in entry.condition.symbols if name not in names}
            try:
                result.append(entry.condition.substitute(others))
            except ZeroDivisionError:
                return None
            continue
        key = tuple((name, slope) for name, slope in entry.slopes.items() if name in names)
        rest = entry.sum_at(base) - sum(slope * base.get(name, 1) for name, slope in key)
        tightest[key] = min(rest, tightest.get(key, rest))
    for key, rest in tightest.items():
        result.append(at_least(sum((slope * Expr.symbol(name) for name, slope in key), Expr.const(rest)), 0))
    return list(dict.fromkeys(result))
