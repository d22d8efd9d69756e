"""Finds a shortest list of conditions that is equivalent to a longer one under the facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, final

from symshape.prover.numbers.condition import FALSE, Condition, all_of, any_of, negation
from symshape.prover.numbers.merge import Merged, merge, remainder_of
from symshape.prover.solver.presburger import Limits, Presburger
from symshape.prover.solver.proof import Fact
from symshape.prover.solver.reasons import smallest
from symshape.prover.solver.satisfy import Found, extended, satisfy
from symshape.prover.solver.search import impossible
from symshape.prover.solver.store_state import State

# What goes first where one of two can go: what is dearer to check and to read.
_RANK: Final = {"or": 0, "and": 1, "ne": 2, "ge": 3, "eq": 4}
# Equations are built into the state; only of so few items is each tried against a state made without it.
_FEW: Final = 24


@final
class Minimiser:
    """One minimisation of one list. While it runs, the items are facts of a state of their own."""

    def __init__(self, state: State, presburger: Presburger, limits: Limits) -> None:
        self._base = self._state = state
        self._presburger, self._limits = presburger, limits
        self._reasons = limits.reasons()
        self._items: dict[int, Merged] = {}

    def run(self, items: Sequence[Merged]) -> list[Merged]:
        """A list that is equivalent to the items wherever the facts hold, in which no item is implied by the others.

        As far as the limits suffice: an item that could not be decided is kept.
        """
        waiting = merge(items)
        for stage in range(3):  # sums first: they tell which remainders, and then which bounds, are the same
            now = [item for item in waiting if _stage(item.condition) == stage]
            contradiction = self._add(now)
            if contradiction is not None:
                return [contradiction]
        numbers = sorted(self._items, key=self._expendability)
        equations = [number for number in numbers if not self._try_without(number, self._state.without(number))]
        if len(self._items) <= _FEW:
            for condition in [self._items[number].condition for number in equations]:
                self._try_without_equation(condition)
        return merge(self._items.values())

    def _add(self, items: Iterable[Merged]) -> Merged | None:
        """Adds the items, without repetitions; returns one that is false if they contradict the facts."""
        fresh = []
        for item in items:
            reduced = self._state.reduce(item.condition)
            if reduced.condition.kind == "true":
                self._leave(item, reduced.used)
            else:
                fresh.append(item)
        merged = merge(fresh, lambda condition: self._state.reduce(condition).condition)
        for item in sorted(merged, key=lambda item: _stage(item.condition)):
            reduced = self._state.reduce(item.condition)
            if reduced.condition.kind == "true":
                self._leave(item, reduced.used)
                continue
            after = extended(self._state, Fact(item.condition), self._presburger, self._limits.question())
            if isinstance(after, Found):
                heirs = self._involved(item.condition, after.used - {len(self._state.facts)})
                origins = [origin for heir in heirs for origin in self._items[heir].origins]
                return Merged(FALSE, item.origins).joined(origins)
            self._items[len(self._state.facts)] = item
            self._state = after
        return None

    def _expendability(self, number: int) -> tuple[int, int, int]:
        condition = self._items[number].condition
        return _RANK.get(condition.kind, len(_RANK)), -len(condition.symbols), -number

    def _satisfy(self, state: State, goal: Condition) -> Found:
        return satisfy(state, goal, self._presburger, self._limits.question(), thorough=False)

    def _try_without(self, number: int, others: State | None) -> bool:
        """Removes an item if the others imply it, else parts of it; False if the state cannot be built without the
        item."""
        if others is None:
            return False
        item = self._items[number]
        found = self._satisfy(others, negation(item.condition))
        if found.kind == "unsat":
            del self._items[number]
            self._state = others
            self._leave(item, found.used)
        else:
            self._shorten(number, others)
        return True

    def _leave(self, item: Merged, used: Iterable[int]) -> None:
        """Removes an item, and adds its origins to the items of a small set that implies it."""
        for heir in self._involved(negation(item.condition), used):
            self._items[heir] = self._items[heir].joined(item.origins)

    def _involved(self, goal: Condition, used: Iterable[int]) -> list[int]:
        """A small set of items that, with the used facts, contradicts the goal."""
        heirs = [number for number in sorted(used) if number in self._items]
        if len(heirs) < 2 or self._reasons.is_spent:
            return heirs
        facts = self._state.facts
        given = [facts[number].condition for number in sorted(used) if number not in self._items]

        def suffices(numbers: list[int]) -> bool:
            if self._reasons.is_spent:
                return False
            conditions = [*given, *(facts[number].condition for number in numbers)]
            return impossible(conditions, goal, self._presburger, self._reasons)

        return smallest(heirs, suffices)

    def _try_without_equation(self, equation: Condition) -> None:
        """Removes an equation that the state has substituted, if the others imply it: a new state is built without
        it."""
        state = self._base
        others: dict[int, Merged] = {}
        for item in self._items.values():
            if item.condition != equation:
                others[len(state.facts)] = item
                state = state.with_fact(Fact(item.condition))
        found = self._satisfy(state, negation(equation))
        if found.kind == "unsat":
            left = next(item for item in self._items.values() if item.condition == equation)
            self._state, self._items = state, others
            self._leave(left, found.used)

    def _shorten(self, number: int, others: State) -> None:
        """Removes operands of an "or" that cannot hold, and operands of an "and" that always hold."""
        item = self._items[number]
        kind, operands = item.condition.kind, list(item.condition.operands)
        if kind not in ("and", "or"):
            return
        for operand in item.condition.operands:
            rest = [other for other in operands if other is not operand]
            goal = operand if kind == "or" else all_of(negation(operand), *rest)
            if rest and self._satisfy(others, goal).kind == "unsat":
                operands = rest
        if len(operands) < len(item.condition.operands):
            shorter = any_of(*operands) if kind == "or" else all_of(*operands)
            del self._items[number]
            self._items[len(others.facts)] = Merged(shorter, item.origins)
            self._state = others.with_fact(Fact(shorter)).with_points(others.points)


def _stage(condition: Condition) -> int:
    """The order of removal: 0 for equations, 1 for remainders, 2 for all others."""
    if condition.kind != "eq":
        return 2
    return 0 if remainder_of(condition) is None else 1
