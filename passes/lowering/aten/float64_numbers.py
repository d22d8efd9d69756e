"""Scalar code of special functions: float64 numbers with Python's operators.

What these functions lose to cancellation and range reduction, float64 has to spare for a float32 result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Union

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.elementwise import Rule, apply
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type

Number = Union["Real", float, int]


@dataclass(frozen=True)
class Real:
    """A float64 scalar in a body."""

    m: Body
    scalar: Scalar

    def of(self, value: Number) -> Real:
        """A number as a Real in this body."""
        return value if isinstance(value, Real) else Real(self.m, self.m.constant(float(value), "f64"))

    def _binary(self, name: str, left: Number, right: Number) -> Real:
        return Real(self.m, self.m.arithmetic(name, self.of(left).scalar, self.of(right).scalar))

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
        return Real(self.m, self.m.neg(self.scalar))

    def __abs__(self) -> Real:
        return self.math("absf")

    def math(self, name: str, *more: Number) -> Real:
        """An operation of the math dialect."""
        return Real(self.m, self.m.math(name, self.scalar, *(self.of(one).scalar for one in more)))

    def compare(self, kind: str, other: Number) -> Scalar:
        """``kind``: eq ne lt le gt ge."""
        return self.m.compare(kind, self.scalar, self.of(other).scalar)

    def where(self, kind: str, other: Number, then: Number, otherwise: Number) -> Real:
        """``then`` where the comparison of this with another holds."""
        condition = self.compare(kind, other)
        return Real(self.m, self.m.select(condition, self.of(then).scalar, self.of(otherwise).scalar))

    def at_least(self, bound: float) -> Real:
        """The larger one; NaN stays."""
        return self.where("lt", bound, bound, self)

    def at_most(self, bound: float) -> Real:
        """The smaller one; NaN stays."""
        return self.where("gt", bound, bound, self)


def polynomial(coefficients: Sequence[float], x: Real) -> Real:
    """Horner's scheme; the highest power first."""
    return reduce(lambda total, c: total.math("fma", x, c), coefficients[1:], x.of(coefficients[0]))


def special(code: Callable[..., Real], arity: int = 1) -> Rule:
    """A rule whose ``code`` is a function of ``arity`` float64 numbers, and of the Python numbers that follow them.

    An operand may be a Python number too: as in eager mode, it is rounded to the result's type first.
    """

    def rule(b: Builder, *args: Any) -> Tensor:
        operands, parameters = args[:arity], args[arity:]
        if not all(isinstance(one, (int, float)) for one in parameters):
            raise Unsupported("a parameter that is not known while compiling")

        def body(m: Body, *scalars: Scalar) -> Scalar:
            return code(*(Real(m, m.cast(one, "f64")) for one in scalars), *parameters).scalar

        of_numbers = compute_type(b.results[0].dtype)
        return apply(b, operands, ["f64" if isinstance(x, Tensor) else of_numbers for x in operands], body)

    return rule
