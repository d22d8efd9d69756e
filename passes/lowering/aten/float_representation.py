"""Rules that use the representation of floats: ``nextafter``, ``frexp``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import apply
from symshape.passes.lowering.aten.scalar_body import Body, Scalar

# compute type: (integer of its width, bits of the mantissa, exponent of 1 as it is stored)
_FORMATS = {"f32": ("i32", 23, 127), "f64": ("i64", 52, 1023)}


def _bits(m: Body, x: Scalar) -> Scalar:
    return m.op("arith.bitcast", _FORMATS[x.dtype][0], x)


def next_after(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """The neighbour of x on the way to y: bits of one sign count up as numbers go away from 0."""
    integer = _FORMATS[x.dtype][0]
    zero, one = m.constant(0.0, x.dtype), m.constant(1, integer)
    away = m.compare("eq", m.compare("lt", x, y), m.compare("gt", x, zero))
    bits = m.add(_bits(m, x), m.select(away, one, m.constant(-1, integer)))
    moved = m.op("arith.bitcast", x.dtype, bits)
    least = m.math("copysign", m.op("arith.bitcast", x.dtype, one), y)
    moved = m.select(m.compare("eq", x, zero), least, moved)
    moved = m.select(m.compare("eq", x, y), y, moved)
    unknown = m.op("arith.ori", "i1", m.is_nan(x), m.is_nan(y))
    return m.select(unknown, m.add(x, y), moved)


def _next_after(b: Builder, x: Any, y: Any) -> Tensor:
    dtype = b.results[0].dtype
    if dtype not in _FORMATS:
        raise Unsupported(f"neighbours among numbers of type {dtype}")
    return apply(b, (x, y), (dtype, dtype), next_after)


def mantissa(m: Body, x: Scalar) -> Scalar:
    """The mantissa, with a magnitude in [1/2, 1). 0, infinities and NaN are unchanged."""
    integer, width, one = _FORMATS[x.dtype]
    kept = m.constant(~(2 * one + 1 << width), integer)
    bits = m.arithmetic("and", _bits(m, _normal(m, x)), kept)
    found = m.op("arith.bitcast", x.dtype, m.arithmetic("or", bits, m.constant(one - 1 << width, integer)))
    return m.select(_is_special(m, x), x, found)


def exponent(m: Body, x: Scalar) -> Scalar:
    """The power of two to go with the mantissa; 0 for 0, infinities and NaN."""
    integer, width, one = _FORMATS[x.dtype]
    field = m.arithmetic("shr", _bits(m, _normal(m, x)), m.constant(width, integer))
    field = m.arithmetic("and", field, m.constant(2 * one + 1, integer))
    shift = m.select(_is_subnormal(m, x), m.constant(one - 1 + width + 1, integer), m.constant(one - 1, integer))
    return m.cast(m.select(_is_special(m, x), m.constant(0, integer), m.sub(field, shift)), "i32")


def _is_subnormal(m: Body, x: Scalar) -> Scalar:
    return m.compare("lt", m.math("absf", x), m.constant(2.0 ** (1 - _FORMATS[x.dtype][2]), x.dtype))


def _normal(m: Body, x: Scalar) -> Scalar:
    """A subnormal number times a power of two, which makes it normal."""
    scale = m.constant(2.0 ** (_FORMATS[x.dtype][1] + 1), x.dtype)
    return m.select(_is_subnormal(m, x), m.mul(x, scale), x)


def _is_special(m: Body, x: Scalar) -> Scalar:
    """0, an infinity or NaN: exactly these are unchanged when they are doubled, or unlike themselves."""
    same = m.compare("eq", m.add(x, x), x)
    return m.op("arith.ori", "i1", same, m.is_nan(x))


def _frexp(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    parts = [
        b.pointwise(x.sizes, r.dtype, [x], lambda v, code=code: code(b.body, v))
        for r, code in zip(b.results, (mantissa, exponent))
    ]
    return parts[0], parts[1]


RULES: dict[str, Callable[..., Any]] = {
    "aten.nextafter.default": _next_after,
    "aten.frexp.Tensor": _frexp,
}
