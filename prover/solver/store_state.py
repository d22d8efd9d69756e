"""The immutable state of a store, so that restoring an earlier one costs nothing.

Equations are solved when they are added: a symbol that equals a sum of others is replaced by it everywhere, so that
other conditions have fewer symbols. Every rewritten condition keeps the numbers of the facts that it follows from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from symshape.prover.numbers.atoms import Symbol
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.evaluate import value_of
from symshape.prover.numbers.expr import Expr
from symshape.prover.solver.eliminate import solution
from symshape.prover.solver.proof import Fact
from symshape.prover.solver.search import Point

_MAX_POINTS: Final = 4
Numbers = frozenset[int]
_NONE: Final[Numbers] = frozenset()


class Entry(NamedTuple):
    """A condition on free symbols, and the numbers of the facts that it follows from.

    ``slopes``: the coefficients of a linear inequality, by symbol; None for any other condition.
    """

    condition: Condition
    used: Numbers
    slopes: Mapping[str, int] | None = None

    @staticmethod
    def of(condition: Condition, used: Numbers = _NONE) -> Entry:
        """The entry for a condition, with its slopes."""
        polynomial = condition.expr._polynomial
        if condition.kind != "ge" or any(len(monomial) > 1 for monomial in polynomial):
            return Entry(condition, used)
        slopes: dict[str, int] = {}
        for monomial, coefficient in polynomial.items():
            for atom in monomial:
                if not isinstance(atom, Symbol):
                    return Entry(condition, used)
                slopes[atom.name] = coefficient
        return Entry(condition, used, slopes)

    def sum_at(self, point: Point) -> int:
        """The value at a point of the sum of a linear inequality."""
        total = self.condition.expr.constant
        for name, slope in (self.slopes or {}).items():
            total += slope * point.get(name, 1)
        return total

    def holds(self, point: Point) -> bool | None:
        """Whether it holds at a point, in which missing symbols are 1; None if a divisor is 0."""
        if self.slopes is not None:
            return self.sum_at(point) >= 0
        missing = self.condition.symbols - point.keys()
        return value_of(self.condition, {**point, **dict.fromkeys(missing, 1)} if missing else point)


class Solved(NamedTuple):
    """The expression that a symbol equals, in free symbols, and the numbers of the facts that imply it."""

    value: Expr
    used: Numbers


@dataclass(frozen=True, slots=True)
class State:
    """Facts in the order they were assumed, and the conditions on the free symbols that follow from them.

    ``entries``    conditions that are, with ``solved``, equivalent to the facts; decided ones are left out of the index
    ``by_symbol``  for each free symbol the positions of the entries that mention it
    ``solved``     the symbols that are not free
    ``points``     some assignments of free symbols at which every entry holds; empty when none is known. A symbol that
                   a point lacks is 1
    ``searched``   how many facts there were when a search for a point last failed
    """

    facts: tuple[Fact, ...] = ()
    entries: tuple[Entry, ...] = ()
    by_symbol: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    solved: Mapping[str, Solved] = field(default_factory=dict)
    points: tuple[Point, ...] = ({},)
    searched: int = 0

    @property
    def is_search_due(self) -> bool:
        """Whether to search for a satisfying point: not soon after such a search failed."""
        return bool(self.points) or 2 * len(self.facts) >= 3 * self.searched

    def without_search(self) -> State:
        """The same state, with a note that a search for a point has just failed."""
        return replace(self, searched=len(self.facts))

    # The free symbols.

    def reduce(self, condition: Condition) -> Entry:
        """The condition on free symbols only, and the facts that were used to rewrite it."""
        known = [(name, self.solved[name]) for name in condition.symbols if name in self.solved]
        if not known:
            return Entry.of(condition)
        used = _NONE.union(*(solved.used for _, solved in known))
        try:
            return Entry.of(condition.substitute({name: solved.value for name, solved in known}), used)
        except ZeroDivisionError:  # some divisor is 0 wherever the facts hold
            return Entry.of(condition)

    def complete(self, point: Point, names: Iterable[str]) -> Point:
        """The values of the named symbols at a point of free symbols."""
        values = {}
        for name in names:
            value = self.solved[name].value if name in self.solved else Expr.symbol(name)
            values[name] = value.evaluate({symbol: point.get(symbol, 1) for symbol in value.symbols})
        return values

    # Other states.

    def with_fact(self, fact: Fact) -> State:
        """The state with one more fact, and without points."""
        number = len(self.facts)
        state = replace(self, facts=(*self.facts, fact), points=())
        parts = fact.condition.operands if fact.condition.kind == "and" else (fact.condition,)
        for part in parts:
            reduced = state.reduce(part)
            state = state._with_entry(reduced._replace(used=reduced.used | {number}))
        return state

    def with_points(self, points: Iterable[Point]) -> State:
        """The state with these points first; all entries must hold at them."""
        kept: list[Point] = []
        for point in (*points, *self.points):
            if len(kept) < _MAX_POINTS and point not in kept:
                kept.append(point)
        return replace(self, points=tuple(kept))

    def without(self, number: int) -> State | None:
        """The state without one fact and its consequences; None if a symbol was solved by it."""
        if any(number in used for _, used in self.solved.values()):
            return None
        return self._less([position for position, (_, used, _) in enumerate(self.entries) if number in used])

    def _less(self, positions: Iterable[int]) -> State:
        """The state without some entries; the others keep their positions."""
        by_symbol = dict(self.by_symbol)
        for position in positions:
            for name in self.entries[position].condition.symbols:
                by_symbol[name] = tuple(other for other in by_symbol[name] if other != position)
        return replace(self, by_symbol=by_symbol)

    def _with_entry(self, entry: Entry) -> State:
        found = solution(entry.condition)
        if found is not None:
            return self._with_solved(found.name, Solved(found.value, entry.used))
        by_symbol = dict(self.by_symbol)
        for name in entry.condition.symbols:
            by_symbol[name] = (*by_symbol.get(name, ()), len(self.entries))
        return replace(self, entries=(*self.entries, entry), by_symbol=by_symbol)

    def _with_solved(self, name: str, this: Solved) -> State:
        """Replaces a symbol everywhere; its conditions become conditions on its value."""
        solved = dict(self.solved)
        for other, (value, used) in self.solved.items():
            if name in value.symbols:
                solved[other] = Solved(value.substitute({name: this.value}), used | this.used)
        solved[name] = this
        positions = self.by_symbol.get(name, ())
        state = replace(self._less(positions), solved=solved)
        for position in positions:
            condition, used, _ = self.entries[position]
            try:
                reduced = Entry.of(condition.substitute({name: this.value}), used | this.used)
            except ZeroDivisionError:
                continue  # no point has a value for it: the facts say nothing that could be used
            if reduced.condition.kind != "true":
                state = state._with_entry(reduced)
        return state

    # Entries.

    def contradiction(self) -> Numbers | None:
        """The facts of an entry that is false as it stands; None if there is none."""
        return next((used for condition, used, _ in self.entries if condition.kind == "false"), None)

    def touching(self, names: Iterable[str]) -> list[int]:
        """The positions of the entries that mention any of the symbols, in order."""
        return sorted({position for name in names for position in self.by_symbol.get(name, ())})

    def surroundings(self, names: Iterable[str], limit: int) -> tuple[list[int], bool]:
        """The positions of entries connected with the symbols, nearest first, and whether these are all.

        Entries that mention only symbols reached so far come before those that add symbols; at most `limit`.
        """
        known, chosen = set(names), dict[int, None]()
        fresh = set(known)
        while fresh:
            touching = self.nearest((position for position in self.touching(fresh) if position not in chosen), known)
            fresh = set()
            for position in touching:
                if len(chosen) >= limit:
                    return list(chosen), False
                chosen[position] = None
                fresh |= self.entries[position].condition.symbols - known
            known |= fresh
        return list(chosen), True

    def nearest(self, positions: Iterable[int], known: AbstractSet[str]) -> list[int]:
        """The positions, sorted by the number of symbols that are not known."""
        return sorted(positions, key=lambda position: len(self.entries[position].condition.symbols - known))

    def violated(self, point: Point, names: Iterable[str]) -> list[int]:
        """The positions of those entries that mention the symbols and do not hold at a point."""
        return [position for position in self.touching(names) if not self.entries[position].holds(point)]
