"""`ConstraintStore`: the constraint engine with sympy as input and output. `ConditionStore` is the same without
sympy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import sympy

from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.facts import Row
from symshape.prover.numbers.sympy_bridge import condition_from_sympy, condition_to_sympy
from symshape.prover.solver.condition_store import Checkpoint, ConditionStore
from symshape.prover.solver.presburger import Limits
from symshape.prover.solver.proof import Fact, Proof


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint of a minimised list: a sympy relation, And or Or, and the origins of all constraints merged into
    it."""

    expr: Any
    origins: tuple[Any, ...]


@final
class ConstraintStore:
    """Facts about integer symbols, and proofs from them. Sound: what is not proven is "unknown" or "contingent".

    Symbols are identified by name. A symbol that was not declared with `symbol` has the range that its sympy
    assumptions give (positive or nonnegative). Divisors are assumed to be nonzero, in facts and in queries; integers
    are unbounded. UnsupportedExpr is raised for an expression that is no condition on integers (floats, Piecewise,
    ...). A store must not be used by two threads at once.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._core = ConditionStore(limits)
        self._symbols: dict[str, Any] = {}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts, in the order they were assumed; bounds of symbols are facts too."""
        return self._core.facts

    def symbol(self, name: str, *, min: int | None = None, max: int | None = None, divisor: int = 1) -> Any:
        """An integer sympy symbol, from now on within [min, max] (None: no bound) and a multiple of the divisor.

        ContradictionError when no value is left; ValueError for a divisor below 1.
        """
        if divisor < 1:
            raise ValueError(f"the divisor of {name} must be at least 1, not {divisor}")
        self._core.symbol(name, Row(min, max, divisor))
        return self._symbols.setdefault(name, sympy.Symbol(name, integer=True))

    def assume(self, constraint: Any, origin: str = "") -> None:
        """Adds a fact (a relation, And, Or, Not, Implies); `origin` is where it comes from, for messages.

        ContradictionError, with a minimal set of contradicting facts and their origins, if the constraint is refuted;
        the store is then unchanged.
        """
        self._core.assume(self._condition(constraint), origin)

    def prove(self, constraint: Any) -> Proof:
        """Whether the constraint follows from the facts ("proven"), its negation does ("refuted"), or neither
        ("contingent", with a satisfying assignment of the symbols for each). "unknown" if the limits did not
        suffice."""
        proof = self._core.prove(self._condition(constraint))
        if not proof.witnesses:
            return proof
        witnesses = tuple({self._symbol(name): value for name, value in w.items()} for w in proof.witnesses)
        return Proof(proof.status, witnesses)

    def minimise(self, constraints: Iterable[Any]) -> list[Constraint]:
        """A shortest list of constraints that is equivalent to the given ones under the facts.

        An item is a constraint, or a pair (constraint, origin); without an origin the constraint is its own.
        Constraints that need no change are returned as they were given. If they contradict the facts, the result is one
        false constraint.
        """
        items: list[tuple[Condition, Sequence[Any]]] = []
        given: dict[Condition, Any] = {}
        for item in constraints:
            constraint, origin = item if isinstance(item, tuple) and not isinstance(item, sympy.Basic) else (item, item)
            condition = self._condition(constraint)
            given.setdefault(condition, constraint)
            items.append((condition, (origin,)))
        return [Constraint(self._shown(given, kept.condition), kept.origins) for kept in self._core.minimise(items)]

    def checkpoint(self) -> Checkpoint:
        """The present state, for `rollback`; after `with store.checkpoint():` all facts that were added inside are
        removed."""
        return self._core.checkpoint()

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Removes all facts that were added since the checkpoint."""
        self._core.rollback(checkpoint)

    def _condition(self, constraint: Any) -> Condition:
        condition = condition_from_sympy(constraint)
        known = self._core.symbols
        for symbol in getattr(constraint, "free_symbols", ()):
            name = str(symbol)
            if name not in self._symbols:
                self._symbols[name] = symbol
            if name not in known and self._symbols[name] == symbol:
                least = 1 if symbol.is_positive else 0 if symbol.is_nonnegative else None
                self._core.symbol(name, Row(least, None))
        return condition

    def _shown(self, given: dict[Condition, Any], condition: Condition) -> Any:
        return given[condition] if condition in given else condition_to_sympy(condition, self._symbol)

    def _symbol(self, name: str) -> Any:
        return self._symbols.setdefault(name, sympy.Symbol(name, integer=True))
