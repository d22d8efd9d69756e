"""PyTorch's ShapeEnv as a solver: sympy's simplification, value ranges, and the literal form of asserted conditions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import sympy

from symshape.frontend.bridge.shape_env import size_functions
from symshape.frontend.bridge.shape_env_answers import QueriedShapeEnv
from symshape.tools.corpus.condition_text import Operators, Relation, names_in, read
from symshape.tools.corpus.solvers.solver import Answer

_RELATIONS: Final[dict[Relation, Any]] = {
    "==": sympy.Eq,
    "!=": sympy.Ne,
    ">=": sympy.Ge,
    "<=": sympy.Le,
    ">": sympy.Gt,
    "<": sympy.Lt,
}


class SympyAlgebra(Operators):
    """The `Algebra` that builds sympy expressions with PyTorch's functions of sizes."""

    def __init__(self, symbols: dict[str, Any]) -> None:
        self._symbols, self._functions = symbols, size_functions()

    def number(self, value: int) -> Any:
        return sympy.Integer(value)

    def symbol(self, name: str) -> Any:
        return self._symbols[name]

    def floordiv(self, left: Any, right: Any) -> Any:
        return self._functions["floordiv"](left, right)

    def mod(self, left: Any, right: Any) -> Any:
        return self._functions["mod"](left, right)

    def maximum(self, values: Sequence[Any]) -> Any:
        return reduce(self._functions["max"], values)

    def minimum(self, values: Sequence[Any]) -> Any:
        return reduce(self._functions["min"], values)

    def compare(self, relation: Relation, left: Any, right: Any) -> Any:
        return _RELATIONS[relation](left, right)

    def truth(self, value: bool) -> Any:
        return sympy.true if value else sympy.false

    def all_of(self, parts: Sequence[Any]) -> Any:
        return sympy.And(*parts)

    def any_of(self, parts: Sequence[Any]) -> Any:
        return sympy.Or(*parts)


class TorchShapeEnv:
    """ShapeEnv as a `Solver`: a new environment per set of facts. It never answers "sometimes"."""

    def __init__(self) -> None:
        self._pool: list[Any] = []
        self._symbols: dict[str, Any] = {}

    def prepare_facts(self, facts: Sequence[str]) -> list[Any]:
        self._symbols = {}
        return [self.prepare(text) for text in facts]

    def tell(self, facts: Sequence[Any]) -> None:
        self._env = QueriedShapeEnv(len(self._symbols))
        self._contradictory = not self._env.assume(facts)

    def prepare(self, condition: str) -> Any:
        for name in sorted(names_in(condition) - self._symbols.keys()):
            if len(self._pool) <= len(self._symbols):
                # Symbols of any environment are equal, so that a pool of one environment serves all.
                self._pool = QueriedShapeEnv(2 * len(self._symbols) + 8).symbols
            self._symbols[name] = self._pool[len(self._symbols)]
        return read(condition, SympyAlgebra(self._symbols))

    def ask(self, condition: Any) -> Answer:
        if self._contradictory:
            return "no sizes"
        found = self._env.answer(condition)
        return "unknown" if found is None else "always" if found else "never"
