"""Scalar code of special functions: float64 numbers with Python's operators.

Errors by cancellation and range reduction are below float32's precision if float32 results are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Union

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import Rule, apply
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type

Number = Union["Real", float, int]


@dataclass(frozen=True)
class Real:
    """A float64 scalar in a body (or one of another type, if all operands have it)."""

    m: Body
    scalar: Scalar
    type: str = "f64"

    def of(self, value: Number) -> Real:
        """A number as a Real in this body."""
        return value if isinstance(value, Real) else self._made(self.m.constant(float(value), self.type))

    def _made(self, scalar: Scalar) -> Real:
        return Real(self.m, scalar, self.type)

    def _binary(self, name: str, left: Number, right: Number) -> Real:
        return self._made(self.m.arithmetic(name, self.of(left).scalar, self.of(right).scalar))

    def __add__(self, other: Number) -> Real:
        return self._binary("add", self, other)

    def __radd__(self, other: Number) -> Real:
        return self._binary("add", other, self)

    def __sub__(self, other: Number) -> Real:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Number) -> Real:
        return self._binary("sub", other, self)

    def __mul__(self, other: Number) -> Real:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Number) -> Real:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Number) -> Real:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Real:
        return self._binary("div", other, self)

    def __neg__(self) -> Real:
        return self._made(self.m.neg(self.scalar))

    def __abs__(self) -> Real:
        return self.math("absf")

    def math(self, name: str, *more: Number) -> Real:
        """An operation of the math dialect."""
        return self._made(self.m.math(name, self.scalar, *(self.of(one).scalar for one in more)))

    def compare(self, kind: str, other: Number) -> Scalar:
        """``kind``: eq ne lt le gt ge."""
        return self.m.compare(kind, self.scalar, self.of(other).scalar)

    def where(self, kind: str, other: Number, then: Number, otherwise: Number) -> Real:
        """``then`` where the comparison of this with another holds."""
        condition = self.compare(kind, other)
        return self._made(self.m.select(condition, self.of(then).scalar, self.of(otherwise).scalar))

    def at_least(self, bound: float) -> Real:
        """The larger one; NaN stays."""
        return self.where("lt", bound, bound, self)

    def at_most(self, bound: float) -> Real:
        """The smaller one; NaN stays."""
        return self.where("gt", bound, bound, self)


def polynomial(coefficients: Sequence[float], x: Real) -> Real:
    """Horner's scheme; the highest power first."""
    return reduce(lambda total, c: total.math("fma", x, c), coefficients[1:], x.of(coefficients[0]))


def special(code: Callable[..., Real], arity: int = 1, narrow: Callable[..., Real] | None = None) -> Rule:
    """A rule whose ``code`` is a function of ``arity`` float64 numbers, and of the Python numbers that follow them.
    ``narrow``: the same function of float32 numbers, for results that are no wider.

    An operand may be a Python number too: as in eager mode, it is rounded to the result's type first.
    """

    def rule(b: Builder, *args: Any) -> Tensor:
        operands, parameters = args[:arity], args[arity:]
        if not all(isinstance(one, (int, float)) for one in parameters):
            raise Unsupported("a parameter that is not known while compiling")

        of_numbers = compute_type(b.results[0].dtype)
        chosen, type_ = (code, "f64") if narrow is None or of_numbers != "f32" else (narrow, "f32")

        def body(m: Body, *scalars: Scalar) -> Scalar:
            return chosen(*(Real(m, m.cast(one, type_), type_) for one in scalars), *parameters).scalar

        return apply(b, operands, [type_ if isinstance(x, Tensor) else of_numbers for x in operands], body)

    return rule
