"""`ConditionStore`: facts that are added and removed, and queries about them. The constraint engine.

Cheapest first: points at which all facts are known to hold (a condition true at one and false at another is
contingent), bounds and divisibility (`Facts`), then isl with branch and bound (`satisfy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, final

from symshape.errors import ContradictionError, SymshapeError
from symshape.prover.numbers.atoms import natural_key
from symshape.prover.numbers.condition import Condition, at_least, equals, negation
from symshape.prover.numbers.decided import decided, facts_from, has_common_factor, without_factors
from symshape.prover.numbers.evaluate import holds_everywhere, value_of
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts, Row
from symshape.prover.numbers.merge import Merged
from symshape.prover.solver.minimise import Minimiser
from symshape.prover.solver.presburger import Limits, Presburger
from symshape.prover.solver.proof import Fact, Proof, Reason
from symshape.prover.solver.reasons import connected, smallest
from symshape.prover.solver.satisfy import Found, extended, satisfy
from symshape.prover.solver.search import Point, impossible
from symshape.prover.solver.store_state import Entry, State

# Facts that the fast engine looks at: it compares each question with all of them.
_QUICK: Final = 24


@final
class Checkpoint:
    """A saved state of a store; as a context manager it restores the state on exit."""

    __slots__ = ("_store", "state")

    def __init__(self, store: ConditionStore, state: State) -> None:
        self._store, self.state = store, state

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.rollback(self)


class ConditionStore:
    """Facts that are `Condition`s, and proofs from them. Sound: if the limits do not suffice, the answer is "unknown".

    Divisors are assumed to be nonzero, in facts and in queries. A store must not be used by two threads at once.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._presburger = Presburger()
        self._state = State()
        self._quick: tuple[Mapping[str, Any], list[int], dict[tuple[int, ...], Facts]] = ({}, [], {})

    # Facts.

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts, in the order they were assumed."""
        return self._state.facts

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols that a fact mentions."""
        return frozenset[str]().union(*(fact.condition.symbols for fact in self._state.facts))

    def symbol(self, name: str, row: Row) -> Expr:
        """Declares a variable with the range and divisor of ``row``; ContradictionError if no value is left.

        Each bound of the row, and its divisor, is a fact of its own, with the symbol as origin.
        """
        value = Expr.symbol(name)
        conditions = [] if row.min is None else [at_least(value, row.min)]
        conditions += [] if row.max is None else [at_least(row.max, value)]
        conditions += [] if row.divisor == 1 else [equals(value % row.divisor, 0)]
        with_all = self.checkpoint()
        try:
            for condition in conditions:
                self.assume(condition, f"symbol {name}")
        except ContradictionError:
            self.rollback(with_all)
            raise
        return value

    def assume(self, condition: Condition, origin: str = "") -> None:
        """Adds a fact.

        ContradictionError, with a minimal set of contradicting facts, if the condition is refuted; the store is then
        unchanged.
        """
        _check_names(condition)
        if condition.kind == "true":
            return
        fact, state = Fact(condition, origin), self._state
        after = extended(state, fact, self._presburger, self._limits.question())
        if isinstance(after, Found):
            raise self._contradiction(state, fact, after.used)
        self._state = after

    def checkpoint(self) -> Checkpoint:
        """The present state, for `rollback` or `with`."""
        return Checkpoint(self, self._state)

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Removes all facts that were added since the checkpoint."""
        self._state = checkpoint.state

    # Questions.

    def prove(self, condition: Condition) -> Proof:
        """Whether the condition follows from the facts, its negation does, or neither."""
        _check_names(condition)
        state = self._state
        reduced = self._without_factors(state, state.reduce(condition))
        value = reduced.condition.as_bool()
        if value is not None:
            return self._decided(state, condition, value, reduced.used)
        true_at = next((point for point in state.points if reduced.holds(point)), None)
        false_at = next((point for point in state.points if reduced.holds(point) is False), None)
        if true_at is None or false_at is None:
            answer = self._quick_proof(state, condition, reduced)
            if answer is not None:
                return answer
        if false_at is None:
            found = self._satisfy(state, negation(reduced.condition))
            if found.kind == "unsat":
                return self._decided(state, condition, True, found.used | reduced.used)
            false_at = found.point
        if true_at is None:
            found = self._satisfy(state, reduced.condition)
            if found.kind == "unsat":
                return self._decided(state, condition, False, found.used | reduced.used)
            true_at = found.point
        if true_at is None or false_at is None:
            return Proof("unknown")
        return self._contingent(state, condition, true_at, false_at)

    def minimise(self, items: Iterable[tuple[Condition, Sequence[Any]]]) -> list[Merged]:
        """A shortest list of conditions that is equivalent under the facts to the given ones (with their origins).

        Conditions are merged where one can express two; implied ones are removed, and their origins added to those that
        imply them. If they contradict the facts, the result is one false condition.
        """
        merged = [Merged(condition, tuple(origins)) for condition, origins in items]
        for item in merged:
            _check_names(item.condition)
        return Minimiser(self._state, self._presburger, self._limits).run(merged)

    def _quick_proof(self, state: State, condition: Condition, reduced: Entry) -> Proof | None:
        key, facts = self._quick_facts(state, reduced.condition)
        answer = decided(facts, reduced.condition)
        if answer is None:
            return None
        return self._decided(state, condition, answer, reduced.used.union(*(state.entries[p].used for p in key)))

    def _quick_facts(self, state: State, condition: Condition) -> tuple[tuple[int, ...], Facts]:
        """The entries that the fast engine uses for a condition, by position, and the `Facts` made of them."""
        if self._quick[0] is not state.by_symbol:  # there are other entries, not only other points
            self._quick = state.by_symbol, state.touching(state.by_symbol), {}
        _, every, known = self._quick
        # Few facts are all told at once: what is built of them serves every question.
        positions = every if len(every) <= _QUICK else state.surroundings(condition.symbols, _QUICK)[0]
        key = tuple(sorted(positions))
        if key not in known:
            known[key] = facts_from(state.entries[position].condition for position in key)
        return key, known[key]

    def _without_factors(self, state: State, entry: Entry) -> Entry:
        """Cancels known factors: s*e == s*f becomes e == f where s is known to be nonzero, s*e >= 0 becomes e >= 0
        where s is positive."""
        if not has_common_factor(entry.condition):
            return entry
        key, facts = self._quick_facts(state, entry.condition)
        shorter = without_factors(facts, entry.condition)
        if shorter == entry.condition:
            return entry
        return Entry.of(shorter, entry.used.union(*(state.entries[position].used for position in key)))

    def _decided(self, state: State, condition: Condition, value: bool, used: Iterable[int]) -> Proof:
        facts = [state.facts[number] for number in sorted(used)]
        goal = negation(condition) if value else condition
        return Proof("proven" if value else "refuted", (), lambda: self._reasons(facts, goal))

    def _contingent(self, state: State, condition: Condition, *points: Point) -> Proof:
        """The answer "contingent", after all facts and the condition have been evaluated at both points."""
        names = {*condition.symbols, *(name for fact in state.facts for name in fact.condition.symbols)}
        ordered = sorted(names, key=natural_key)
        witnesses = tuple(state.complete(point, ordered) for point in points)
        for witness, wanted in zip(witnesses, (True, False), strict=True):
            held = holds_everywhere((fact.condition for fact in state.facts), witness)
            if not held or value_of(condition, witness) is not wanted:
                return Proof("unknown")
        return Proof("contingent", witnesses)

    def _reasons(self, facts: Sequence[Fact], goal: Condition) -> tuple[Reason, ...]:
        """A small subset of the facts that contradicts the goal."""
        budget = self._limits.reasons()

        def suffices(part: list[Fact]) -> bool:
            return impossible([fact.condition for fact in part], goal, self._presburger, budget)

        # The fast engine also gets facts unrelated to the goal: removing them one by one is expensive.
        return tuple(fact.reason for fact in smallest(connected(facts, goal), suffices))

    def _contradiction(self, state: State, fact: Fact, used: Iterable[int]) -> ContradictionError:
        others = [state.facts[number] for number in sorted(used) if number < len(state.facts)]
        return ContradictionError([*self._reasons(others, fact.condition), fact.reason], where=fact.origin)

    def _satisfy(self, state: State, goal: Condition) -> Found:
        found = satisfy(state, goal, self._presburger, self._limits.question())
        if found.point is not None and self._state is state:
            self._state = state.with_points([found.point])
        return found


def _check_names(condition: Condition) -> None:
    """ValueError for names that are reserved for quotients of symbols: "s0//8", "s0/8"."""
    taken = sorted(name for name in condition.symbols if "/" in name)
    if taken:
        raise SymshapeError(f"a symbol's name must not contain '/': {taken[0]}", next_step="call it something else")
