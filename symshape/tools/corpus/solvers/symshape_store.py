"""symshape's prover as a solver: all of it (``ConditionStore``), or its first engine (``Facts``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from symshape.errors import ContradictionError
from symshape.prover.numbers import condition as conditions
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.decided import decided, facts_from
from symshape.prover.numbers.expr import Expr, maximum, minimum
from symshape.prover.numbers.facts import Facts
from symshape.prover.solver.condition_store import ConditionStore
from symshape.tools.corpus.condition_text import Operators, Relation, read
from symshape.tools.corpus.solvers.solver import Answer

_ANSWERS: Final[dict[str, Answer]] = {
    "proven": "always",
    "refuted": "never",
    "contingent": "sometimes",
    "unknown": "unknown",
}
_COMPARE: Final[dict[Relation, Any]] = {
    "==": conditions.equals,
    "!=": conditions.differs,
    ">=": conditions.at_least,
    ">": conditions.greater,
    "<=": lambda left, right: conditions.at_least(right, left),
    "<": lambda left, right: conditions.greater(right, left),
}


class ConditionAlgebra(Operators):
    """The `Algebra` that builds `Condition`."""

    def number(self, value: int) -> Expr:
        return Expr.const(value)

    def symbol(self, name: str) -> Expr:
        return Expr.symbol(name)

    def floordiv(self, left: Expr, right: Expr) -> Expr:
        return left // right

    def mod(self, left: Expr, right: Expr) -> Expr:
        return left % right

    def maximum(self, values: Sequence[Expr]) -> Expr:
        return reduce(maximum, values)

    def minimum(self, values: Sequence[Expr]) -> Expr:
        return reduce(minimum, values)

    def compare(self, relation: Relation, left: Expr, right: Expr) -> Condition:
        found: Condition = _COMPARE[relation](left, right)
        return found

    def truth(self, value: bool) -> Condition:
        return conditions.TRUE if value else conditions.FALSE

    def all_of(self, parts: Sequence[Condition]) -> Condition:
        return conditions.all_of(*parts)

    def any_of(self, parts: Sequence[Condition]) -> Condition:
        return conditions.any_of(*parts)


def condition_of(text: str) -> Condition:
    """The condition in the prover's form."""
    found: Condition = read(text, ConditionAlgebra())
    return found


class SymshapeStore:
    """The whole prover as a `Solver`. Facts are assumed one by one, as during a compile."""

    def prepare_facts(self, facts: Sequence[str]) -> list[Condition]:
        return [condition_of(text) for text in facts]

    def tell(self, facts: Sequence[Condition]) -> None:
        self._store, self._contradictory = ConditionStore(), False
        try:
            for fact in facts:
                self._store.assume(fact)
        except ContradictionError:
            self._contradictory = True

    def prepare(self, condition: str) -> Condition:
        return condition_of(condition)

    def ask(self, condition: Condition) -> Answer:
        return "no sizes" if self._contradictory else _ANSWERS[self._store.prove(condition).status]


class SymshapeBounds:
    """The prover's first engine as a `Solver`; it answers most questions of passes. It never answers "sometimes"."""

    def prepare_facts(self, facts: Sequence[str]) -> list[Condition]:
        return [condition_of(text) for text in facts]

    def tell(self, facts: Sequence[Condition]) -> None:
        self._facts: Facts = facts_from(facts)

    def prepare(self, condition: str) -> Condition:
        return condition_of(condition)

    def ask(self, condition: Condition) -> Answer:
        found = decided(self._facts, condition)
        return "unknown" if found is None else "always" if found else "never"
