"""What a store knows at one moment: immutable, so that going back to it costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from symshape.prover.condition import Condition
from symshape.prover.proof import Fact
from symshape.prover.search import Point
from symshape.prover.truth import value_of

_MAX_POINTS = 4


@dataclass(frozen=True, slots=True)
class State:
    """Facts in the order they were assumed, which of them mention a symbol, and some points at which all hold.

    ``points`` is empty when no such point is known (the search ran out of budget). A point may lack symbols that no
    fact mentions.
    """

    facts: tuple[Fact, ...] = ()
    by_symbol: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    points: tuple[Point, ...] = ({},)

    def with_fact(self, fact: Fact, points: Iterable[Point]) -> State:
        """The state with one fact more; the points must satisfy it."""
        by_symbol = dict(self.by_symbol)
        number = len(self.facts)
        for name in fact.condition.symbols:
            by_symbol[name] = (*by_symbol.get(name, ()), number)
        return State((*self.facts, fact), by_symbol, tuple(points)[:_MAX_POINTS])

    def with_point(self, point: Point) -> State:
        """The state with another point, at which all facts must hold."""
        if point in self.points:
            return self
        return State(self.facts, self.by_symbol, (point, *self.points)[:_MAX_POINTS])

    def without(self, number: int) -> State:
        """The state less one fact, which keeps its number but is found no more."""
        by_symbol = dict(self.by_symbol)
        for name in self.facts[number].condition.symbols:
            by_symbol[name] = tuple(other for other in by_symbol[name] if other != number)
        return State(self.facts, by_symbol, self.points)

    def touching(self, names: Iterable[str]) -> list[int]:
        """The numbers of the facts that mention any of the symbols, in order."""
        return sorted({number for name in names for number in self.by_symbol.get(name, ())})

    def surroundings(self, names: Iterable[str], limit: int) -> tuple[list[int], bool]:
        """The numbers of facts connected with the symbols, nearest first, and whether these are all.

        Facts of only the symbols known so far come before those that bring in new ones; at most about `limit`.
        """
        known, chosen = set(names), dict[int, None]()
        fresh = set(known)
        while fresh:
            touching = self.nearest((number for number in self.touching(fresh) if number not in chosen), known)
            fresh = set()
            for number in touching:
                if len(chosen) >= limit:
                    return list(chosen), False
                chosen[number] = None
                fresh |= self.facts[number].condition.symbols - known
            known |= fresh
        return list(chosen), True

    def nearest(self, numbers: Iterable[int], known: AbstractSet[str]) -> list[int]:
        """The same numbers, facts with the fewest symbols besides the known ones first."""
        return sorted(numbers, key=lambda number: len(self.facts[number].condition.symbols - known))

    def violated(self, point: Point, names: Iterable[str]) -> list[int]:
        """The numbers of the facts that do not hold at a point, of those that mention the symbols."""
        return [number for number in self.touching(names) if not self.holds(self.facts[number].condition, point)]

    @staticmethod
    def holds(condition: Condition, point: Point) -> bool | None:
        """Whether it holds at a point, symbols that the point lacks being 1; None where it has no value."""
        missing = condition.symbols - point.keys()
        return value_of(condition, {**point, **dict.fromkeys(missing, 1)} if missing else point)
