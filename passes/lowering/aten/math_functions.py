"""Rules of functions of one number, and of special functions of two."""

from __future__ import annotations

import math
from typing import Any

from symshape.passes.lowering.aten.rule_combinators import Rule, math_op, on_floats, predicate, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type, is_float

INFINITY = math.inf


def reciprocal(m: Body, x: Scalar) -> Scalar:
    return m.div(m.constant(1.0, x.dtype), x)


def sigmoid(m: Body, x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), for negative numbers as exp(x) / (1 + exp(x)): nothing overflows, and subnormal results are
    not flushed to 0. The divisor's rounding error is corrected to first order."""
    zero, one, half = (m.constant(value, x.dtype) for value in (0.0, 1.0, 0.5))
    small = m.math("exp", m.neg(m.math("absf", x)))
    divisor = m.add(one, small)
    lost = m.sub(small, m.sub(divisor, one))
    quotient = m.div(m.select(m.compare("lt", x, zero), small, one), divisor)
    return m.sub(quotient, m.mul(quotient, m.mul(lost, m.sub(one, m.mul(half, small)))))


def round_decimals(m: Body, x: Scalar, decimals: int = 0) -> Scalar:
    ten = m.constant(10.0 ** abs(decimals), x.dtype)
    if decimals < 0:
        return m.mul(m.math("roundeven", m.div(x, ten)), ten)
    return m.div(m.math("roundeven", m.mul(x, ten)), ten)


def sign(m: Body, x: Scalar) -> Scalar:
    """-1, 0 or 1; 0 for NaN, as eager has it."""
    zero, one = m.constant(0, x.dtype), m.constant(1, x.dtype)
    positive = m.select(m.compare("gt", x, zero), one, zero)
    if x.dtype in ("ui8", "i1"):
        return positive
    return m.select(m.compare("lt", x, zero), m.constant(-1, x.dtype), positive)


def angle(m: Body, x: Scalar) -> Scalar:
    """Of a real number: pi if negative, NaN for NaN."""
    zero = m.constant(0.0, x.dtype)
    half_turn = m.select(m.compare("lt", x, zero), m.constant(math.pi, x.dtype), zero)
    return m.select(m.is_nan(x), x, half_turn)


def x_times(name: str) -> Any:
    """x * f(y), 0 where x is 0 even if f(y) is infinite; NaN of y propagates."""

    def code(m: Body, x: Scalar, y: Scalar) -> Scalar:
        zero = m.constant(0.0, x.dtype)
        product = m.mul(x, m.math(name, y))
        return m.select(m.is_nan(y), y, m.select(m.compare("eq", x, zero), zero, product))

    return code


def hypot(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """Scaled by the larger side, so that squares do not overflow; an infinite side wins over NaN."""
    zero, one, infinity = (m.constant(v, x.dtype) for v in (0.0, 1.0, INFINITY))
    x, y = m.math("absf", x), m.math("absf", y)
    longer, shorter = m.max(x, y), m.min(x, y)
    ratio = m.div(shorter, longer)
    length = m.mul(longer, m.math("sqrt", m.add(one, m.mul(ratio, ratio))))
    length = m.select(m.compare("eq", longer, zero), zero, length)
    for side in (x, y):
        length = m.select(m.compare("eq", side, infinity), infinity, length)
    return length


def wide_hypot(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """For float32 computed in float64, where no square overflows, and rounded once; an infinite operand wins over
    NaN."""
    first, second = (m.cast(v, "f64") for v in (x, y))
    length = m.cast(m.math("sqrt", m.add(m.mul(first, first), m.mul(second, second))), x.dtype)
    infinity = m.constant(INFINITY, x.dtype)
    for side in (x, y):
        length = m.select(m.compare("eq", m.math("absf", side), infinity), infinity, length)
    return length


def hypot_rule(b: Any, *operands: Any) -> Any:
    """On CPUs as exact as eager mode's. GPUs may be slow in float64, and CUDA's own function is not exact either."""
    wide = b.target == "cpu" and compute_type(b.results[0].dtype) == "f32"
    return to_result(wide_hypot if wide else hypot)(b, *operands)


def log_add_exp(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """log(exp(x) + exp(y)) from the larger one; equal infinities give themselves."""
    one = m.constant(1.0, x.dtype)
    distance = m.neg(m.math("absf", m.sub(x, y)))
    total = m.add(m.max(x, y), m.math("log", m.add(one, m.math("exp", distance))))
    infinite = m.compare("eq", m.math("absf", x), m.constant(INFINITY, x.dtype))
    return m.select(m.op("arith.andi", "i1", infinite, m.compare("eq", x, y)), x, total)


def heaviside(m: Body, x: Scalar, at_zero: Scalar) -> Scalar:
    zero, one = m.constant(0, x.dtype), m.constant(1, x.dtype)
    step = m.select(m.compare("lt", x, zero), zero, one) if x.dtype != "i1" else x
    result = m.select(m.compare("eq", x, zero), at_zero, step)
    return m.select(m.is_nan(x), zero, result) if is_float(x.dtype) else result


def is_infinite(m: Body, x: Scalar) -> Scalar:
    return m.compare("eq", m.math("absf", x), m.constant(INFINITY, x.dtype))


def sign_bit(m: Body, x: Scalar) -> Scalar:
    """The sign bit, also of -0.0 and NaN: by copysign, since a comparison does not distinguish these."""
    if is_float(x.dtype):
        x = m.math("copysign", m.constant(1.0, x.dtype), x)
    return m.compare("lt", x, m.constant(0, x.dtype))


_MATH = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
)

RULES: dict[str, Rule] = {
    **{f"aten.{name}.default": to_result(math_op(name)) for name in _MATH},
    "aten.floor.default": to_result(on_floats(math_op("floor"))),
    "aten.ceil.default": to_result(on_floats(math_op("ceil"))),
    "aten.trunc.default": to_result(on_floats(math_op("trunc"))),
    "aten.round.default": to_result(on_floats(math_op("roundeven"))),
    "aten.round.decimals": to_result(round_decimals, 1),
    "aten.reciprocal.default": to_result(reciprocal),
    "aten.sigmoid.default": to_result(sigmoid),
    "aten.sign.default": to_result(sign),
    "aten.angle.default": to_result(angle),
    "aten.xlogy.Tensor": to_result(x_times("log")),
    "aten.special_xlog1py.default": to_result(x_times("log1p")),
    "aten.hypot.default": hypot_rule,
    "aten.logaddexp.default": to_result(log_add_exp),
    "aten.heaviside.default": to_result(heaviside),
    "aten.atan2.default": to_result(math_op("atan2")),
    "aten.copysign.Tensor": to_result(math_op("copysign")),
    "aten.copysign.Scalar": to_result(math_op("copysign")),
    "aten.isnan.default": predicate(lambda m, x: m.is_nan(x), False),
    "aten.isinf.default": predicate(is_infinite, False),
    "aten.signbit.default": predicate(sign_bit),
}
