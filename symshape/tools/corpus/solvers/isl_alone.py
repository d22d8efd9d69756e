"""isl alone: builds the set of sizes that satisfy all facts, and intersects it with the condition and its complement.

isl decides Presburger arithmetic. A product of sizes, or a division by a size, becomes a fresh parameter named by its
text, so that equal terms are equal. An empty set with such parameters still proves that there are no sizes; a nonempty
one proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from symshape.tools.corpus.condition_text import Relation, read
from symshape.tools.corpus.solvers.solver import Answer, answer_of


class _Value(NamedTuple):
    """A quasi-affine expression, its text, and its value if it is constant."""

    affine: Any
    text: str
    number: int | None = None


class IslAlgebra:
    """The `Algebra` that builds isl's piecewise quasi-affine expressions and sets. ``exact`` becomes False once a term
    is replaced by a parameter."""

    def __init__(self, isl: Any, context: Any) -> None:
        self._isl, self._context = isl, context
        self._opaque: dict[str, str] = {}
        self.exact = True

    def number(self, value: int) -> _Value:
        return _Value(self._isl.PwAff(f"{{ [({value})] }}", self._context), str(value), value)

    def symbol(self, name: str) -> _Value:
        return self._parameter(f"v_{name}", name)

    def _parameter(self, name: str, text: str) -> _Value:
        return _Value(self._isl.PwAff(f"[{name}] -> {{ [({name})] }}", self._context), text)

    def _unknown(self, text: str) -> _Value:
        """The parameter that stands for a nonlinear term; equal texts give the same one."""
        self.exact = False
        return self._parameter(self._opaque.setdefault(text, f"unknown_{len(self._opaque)}"), text)

    def add(self, left: _Value, right: _Value) -> _Value:
        return _Value(left.affine.add(right.affine), f"({left.text} + {right.text})")

    def subtract(self, left: _Value, right: _Value) -> _Value:
        return _Value(left.affine.sub(right.affine), f"({left.text} - {right.text})")

    def multiply(self, left: _Value, right: _Value) -> _Value:
        if left.number is None and right.number is None:
            return self._unknown("*".join(sorted((left.text, right.text))))
        number = None if left.number is None or right.number is None else left.number * right.number
        return _Value(left.affine.mul(right.affine), f"{left.text}*{right.text}", number)

    def floordiv(self, left: _Value, right: _Value) -> _Value:
        text = f"({left.text} // {right.text})"
        return self._unknown(text) if right.number is None else _Value(left.affine.div(right.affine).floor(), text)

    def mod(self, left: _Value, right: _Value) -> _Value:
        return self.subtract(left, self.multiply(right, self.floordiv(left, right)))

    def maximum(self, values: Sequence[_Value]) -> _Value:
        text = f"max({', '.join(value.text for value in values)})"
        return _Value(reduce(lambda a, b: a.max(b), [value.affine for value in values]), text)

    def minimum(self, values: Sequence[_Value]) -> _Value:
        text = f"min({', '.join(value.text for value in values)})"
        return _Value(reduce(lambda a, b: a.min(b), [value.affine for value in values]), text)

    def compare(self, relation: Relation, left: _Value, right: _Value) -> Any:
        names = {"==": "eq_set", "!=": "ne_set", ">=": "ge_set", "<=": "le_set", ">": "gt_set", "<": "lt_set"}
        return getattr(left.affine, names[relation])(right.affine)

    def truth(self, value: bool) -> Any:
        return self._isl.Set("{ : }" if value else "{ : 1 = 0 }", self._context)

    def all_of(self, parts: Sequence[Any]) -> Any:
        return reduce(lambda a, b: a.intersect(b), parts)

    def any_of(self, parts: Sequence[Any]) -> Any:
        return reduce(lambda a, b: a.union(b), parts)


class IslAlone:
    """isl as a `Solver`: one set for the facts, and two intersections per question."""

    def __init__(self) -> None:
        import islpy

        self._isl = islpy
        self._context = islpy.Context()
        self._algebra = IslAlgebra(islpy, self._context)

    def prepare_facts(self, facts: Sequence[str]) -> tuple[list[Any], bool]:
        found = [self._read(text) for text in facts]
        return [holds for holds, _ in found], all(exact for _, exact in found)

    def tell(self, facts: tuple[list[Any], bool]) -> None:
        sets, self._exact = facts
        self._facts = reduce(lambda a, b: a.intersect(b), sets, self._algebra.truth(True))

    def prepare(self, condition: str) -> tuple[Any, bool]:
        return self._read(condition)

    def ask(self, condition: tuple[Any, bool]) -> Answer:
        holds, exact = condition
        exact = exact and self._exact
        can_be_false = not self._facts.intersect(holds.complement()).is_empty()
        can_be_true = not self._facts.intersect(holds).is_empty()
        return answer_of(*(None if can_be and not exact else can_be for can_be in (can_be_false, can_be_true)))

    def _read(self, text: str) -> tuple[Any, bool]:
        self._algebra.exact = True
        return read(text, self._algebra), self._algebra.exact
