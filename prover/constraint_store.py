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
    """One constraint of a minimised list: a sympy relation, And or Or, and the origins of all that went into it."""

    expr: Any
    origins: tuple[Any, ...]


@final
class ConstraintStore:
    """Facts about integer symbols, and proofs from them. Never a wrong answer.

    Symbols are told apart by name. One that was never declared has what its sympy assumptions say (positive or
    nonnegative). Divisors are taken to be nonzero, in facts and in questions; integers are unbounded.
    UnsupportedExpr is raised for what is no condition on integers (floats, Piecewise, ...).
    One store must not be used by two threads at once.
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
        """The constraint (a relation, And, Or, Not, Implies) holds from now on; `origin` says who said so.

        ContradictionError, with a smallest set of facts that cannot all hold and their origins, when it is known to be
        false; the store then stays as it was.
        """
        self._core.assume(self._condition(constraint), origin)

    def prove(self, constraint: Any) -> Proof:
        """Whether the constraint follows from the facts ("proven"), its negation does ("refuted"), or neither
        ("contingent", with an assignment of the symbols for each side). "unknown" when the limits did not suffice.
        """
        proof = self._core.prove(self._condition(constraint))
        if not proof.witnesses:
            return proof
        witnesses = tuple({self._symbol(name): value for name, value in w.items()} for w in proof.witnesses)
        return Proof(proof.status, witnesses)

    def minimise(self, constraints: Iterable[Any]) -> list[Constraint]:
        """A shortest list that says, under the facts, exactly what the given constraints say together.

        An item is a constraint, or a pair (constraint, origin); without an origin the constraint itself stands as its
        own. What needed no change comes back as it was given. A single false constraint remains when they contradict
        the facts.
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
        """This moment, for `rollback`; after `with store.checkpoint():` all that was assumed inside is gone."""
        return self._core.checkpoint()

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Takes back everything assumed since."""
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
