"""A shortest list of conditions that says, under the facts, what a longer one says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from symshape.prover.condition import FALSE, Condition, all_of, any_of, negation
from symshape.prover.merge import Merged, merge
from symshape.prover.presburger import Limits, Presburger
from symshape.prover.proof import Fact
from symshape.prover.reasons import smallest
from symshape.prover.satisfy import Found, extended, satisfy
from symshape.prover.search import impossible
from symshape.prover.state import State

# What goes first where one of two can go: what is dearer to check and to read.
_RANK: Final = {"or": 0, "and": 1, "ne": 2, "ge": 3, "eq": 4}


@final
class Minimiser:
    """One run over one list. The items are facts of the state while it lasts, numbered after the store's own."""

    def __init__(self, state: State, presburger: Presburger, limits: Limits) -> None:
        self._state, self._presburger, self._limits = state, presburger, limits
        self._items: dict[int, Merged] = {}

    def run(self, items: Sequence[Merged]) -> list[Merged]:
        """Items that are together equivalent to the given ones wherever the facts hold, none implied by the others.

        As far as the limits suffice; what they leave open stays in.
        """
        for item in merge(items):
            number = len(self._state.facts)
            after = extended(self._state, Fact(item.condition), self._presburger, self._limits.question())
            if isinstance(after, Found):
                return [self._contradiction(item, after)]
            self._state, self._items[number] = after, item
        for number in sorted(self._items, key=self._expendability):
            others = self._state.without(number)
            found = self._satisfy(others, negation(self._items[number].condition))
            if found.kind == "unsat":
                self._state = others
                self._drop(number, found)
            else:
                self._shorten(number, others)
        return merge(self._items.values())

    def _expendability(self, number: int) -> tuple[int, int, int]:
        condition = self._items[number].condition
        return _RANK.get(condition.kind, len(_RANK)), -len(condition.symbols), -number

    def _satisfy(self, state: State, goal: Condition) -> Found:
        return satisfy(state, goal, self._presburger, self._limits.question())

    def _drop(self, number: int, found: Found) -> None:
        """Leaves the item out; its origins go to the items of a small set that implies it."""
        item = self._items.pop(number)
        for heir in self._involved(negation(item.condition), found):
            self._items[heir] = self._items[heir].joined(item.origins)

    def _involved(self, goal: Condition, found: Found) -> list[int]:
        """The items among a small set of facts with which the goal cannot hold."""
        if not any(number in self._items for number in found.used):
            return []
        budget = self._limits.reasons()
        facts = self._state.facts

        def suffices(numbers: list[int]) -> bool:
            return impossible([facts[number].condition for number in numbers], goal, self._presburger, budget)

        # Items last: those are what one would rather leave out.
        used = sorted(found.used, key=lambda number: number in self._items)
        return [number for number in smallest(used, suffices) if number in self._items]

    def _contradiction(self, item: Merged, found: Found) -> Merged:
        result = Merged(FALSE, item.origins)
        for number in self._involved(item.condition, found):
            result = result.joined(self._items[number].origins)
        return result

    def _shorten(self, number: int, others: State) -> None:
        """Leaves out the operands of an "or" that cannot hold, and of an "and" that hold anyway."""
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
            self._items[number] = Merged(shorter, item.origins)
            self._state = others.with_fact(Fact(shorter), others.points)
            self._items[len(self._state.facts) - 1] = self._items.pop(number)
