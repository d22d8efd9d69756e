"""Rules of arithmetic, comparisons, bitwise operators and clamps, with eager mode's results for integers and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import (
    Code,
    Rule,
    apply,
    body_op,
    compare,
    is_factor,
    logical,
    math_op,
    number,
    promoted,
    scaled,
    to_result,
)
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type, is_float
from symshape.prover.numbers.expr import Expr

BITS = {"ui8": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
UNSIGNED = ("ui8", "i1")


def plain(name: str) -> Code:
    """Scalar code: one operation of the arith dialect."""
    return lambda m, x, y: m.arithmetic(name, x, y)


def add(m: Body, x: Scalar, y: Scalar, alpha: Any = 1) -> Scalar:
    return m.add(x, y if alpha is True or alpha == 1 else m.mul(y, number(m, alpha, y.dtype)))


def sub(m: Body, x: Scalar, y: Scalar, alpha: Any = 1) -> Scalar:
    return m.sub(x, y if alpha == 1 else m.mul(y, number(m, alpha, y.dtype)))


def rsub(m: Body, x: Scalar, y: Scalar, alpha: Any = 1) -> Scalar:
    return sub(m, y, x, alpha)


def addcmul(m: Body, x: Scalar, y: Scalar, z: Scalar, value: Any = 1) -> Scalar:
    return m.add(x, m.mul(m.mul(number(m, value, x.dtype), y), z))


def addcdiv(m: Body, x: Scalar, y: Scalar, z: Scalar, value: Any = 1) -> Scalar:
    return m.add(x, m.div(m.mul(number(m, value, x.dtype), y), z))


def fused(m: Body, x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """x * y + z; floats are rounded once (FMA)."""
    return m.math("fma", x, y, z) if is_float(x.dtype) else m.add(m.mul(x, y), z)


def absolute(m: Body, x: Scalar) -> Scalar:
    if is_float(x.dtype):
        return m.math("absf", x)
    return x if x.dtype in UNSIGNED else m.select(m.compare("lt", x, m.constant(0, x.dtype)), m.neg(x), x)


def opposite_signs(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """Whether one of two numbers is negative and the other is not."""
    zero = m.constant(0, x.dtype)
    return m.op("arith.xori", "i1", m.compare("lt", x, zero), m.compare("lt", y, zero))


def differs_from_floor(m: Body, rest: Scalar, divisor: Scalar) -> Scalar:
    """Whether rounding towards zero, which left this rest, differs from rounding down."""
    nonzero = m.compare("ne", rest, m.constant(0, rest.dtype))
    return m.op("arith.andi", "i1", nonzero, opposite_signs(m, rest, divisor))


def remainder(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """The rest with the divisor's sign, as Python's %."""
    rest = m.arithmetic("rem", x, y)
    return rest if x.dtype in UNSIGNED else m.select(differs_from_floor(m, rest, y), m.add(rest, y), rest)


Rounding = Callable[[Body, Scalar], Scalar]


def _exact(_: Body, x: Scalar) -> Scalar:
    return x


def floor_divide(m: Body, x: Scalar, y: Scalar, rounded: Rounding = _exact) -> Scalar:
    """Rounds down. For floats computed from the exact remainder, as in eager mode: floor(x / y) is wrong where x / y
    rounds up. ``rounded``: applied to the result of each step."""
    if not is_float(x.dtype):
        return m.arithmetic("floordiv", x, y)
    zero, one, half = (m.constant(v, x.dtype) for v in (0.0, 1.0, 0.5))
    ratio = m.div(x, y)
    rest = m.arithmetic("rem", x, y)
    quotient = rounded(m, m.div(rounded(m, m.sub(x, rest)), y))
    quotient = m.select(differs_from_floor(m, rest, y), rounded(m, m.sub(quotient, one)), quotient)
    floor = m.math("floor", quotient)
    beyond = m.compare("gt", rounded(m, m.sub(quotient, floor)), half)
    floor = m.select(beyond, m.add(floor, one), floor)
    floor = m.select(m.compare("ne", quotient, zero), floor, m.math("copysign", zero, ratio))
    return m.select(m.compare("eq", y, zero), ratio, floor)


def truncate_divide(m: Body, x: Scalar, y: Scalar, rounded: Rounding = _exact) -> Scalar:
    quotient = rounded(m, m.div(x, y))
    return m.math("trunc", quotient) if is_float(x.dtype) else quotient


def _stepwise_rounded(code: Callable[..., Scalar]) -> Rule:
    """As ``scaled``, for discontinuous functions: eager mode rounds each step of a half type if the divisor is a
    tensor, which decides the integer of the quotient."""

    def rule(b: Builder, x: Any, y: Any) -> Tensor:
        dtype = b.results[0].dtype
        wide = compute_type(dtype)
        if wide == dtype or not isinstance(y, Tensor) or is_factor(b, y):
            return scaled(code)(b, x, y)

        def rounded(m: Body, v: Scalar) -> Scalar:
            return m.rounded(v, dtype)

        return apply(b, (x, y), (wide, wide), lambda m, x, y: code(m, rounded(m, x), rounded(m, y), rounded))

    return rule


_DIVISIONS = {
    None: scaled(body_op("div")),
    "floor": _stepwise_rounded(floor_divide),
    "trunc": _stepwise_rounded(truncate_divide),
}


def divide(b: Builder, x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    return _DIVISIONS[rounding_mode](b, x, y)


def power(b: Builder, x: Any, y: Any) -> Tensor:
    """Constant exponents are multiplied out where eager does so, others go to powf; integers are exact."""
    dtype = compute_type(b.results[0].dtype)
    if not is_float(dtype):
        if isinstance(y, (int, Expr)) and not _nonnegative(b, y):
            raise Unsupported("an integer to a power that may be negative is eager's error")
        return apply(b, (x, y), (dtype, dtype), _integer_power)
    roots = _HALF_ROOTS if b.results[0].dtype == "f16" and b.target == "cpu" else {}
    special = roots.get(y, _SPECIAL_POWERS.get(y)) if isinstance(y, (int, float)) else None
    if special is not None:
        return apply(b, (x,), (dtype,), special)
    return apply(b, (x, y), (dtype, dtype), math_op("powf"))


def _nonnegative(b: Builder, exponent: int | Expr) -> bool:
    low = b.facts.bounds(exponent)[0] if isinstance(exponent, Expr) else exponent
    return low is not None and low >= 0


def _inverse(m: Body, x: Scalar) -> Scalar:
    return m.div(m.constant(1, x.dtype), x)


_SPECIAL_POWERS = {
    0.5: math_op("sqrt"),
    -0.5: lambda m, x: _inverse(m, m.math("sqrt", x)),
    1: lambda m, x: x,
    -1: _inverse,
    2: lambda m, x: m.mul(x, x),
    3: lambda m, x: m.mul(m.mul(x, x), x),
    -2: lambda m, x: _inverse(m, m.mul(x, x)),
}


def _half_root(m: Body, x: Scalar) -> Scalar:
    """As C's pow for -0.0 and -infinity, unlike sqrt."""
    root = m.math("sqrt", m.add(x, m.constant(0.0, x.dtype)))
    return m.select(m.compare("eq", x, m.constant(-math.inf, x.dtype)), m.constant(math.inf, x.dtype), root)


# Of float16 on CPUs alone eager mode takes no root (PowKernel.cpp).
_HALF_ROOTS = {0.5: _half_root, -0.5: lambda m, x: _inverse(m, _half_root(m, x))}


def _integer_power(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """Square and multiply over the bits of the exponent, modulo the width; a negative exponent truncates 1 / x**-y."""
    if x.dtype == "i1":
        return m.arithmetic("or", x, m.logical_not(y))
    one, zero = m.constant(1, x.dtype), m.constant(0, x.dtype)
    bits = BITS[x.dtype] - (x.dtype not in UNSIGNED)
    result, base = one, x
    for i in range(bits):
        bit = m.op("arith.trunci", "i1", m.op("arith.shrui", x.dtype, y, m.constant(i, x.dtype)))
        result = m.select(bit, m.mul(result, base), result)
        base = m.mul(base, base)
    if x.dtype in UNSIGNED:
        return result
    # 1 / x**n is x**n itself for x = 1 and -1, and 0 for all others; the low bit of n is that of -n.
    odd = m.op("arith.trunci", "i1", y)
    alternating = m.select(odd, x, one)
    unit = m.compare("eq", absolute(m, x), one)
    return m.select(m.compare("lt", y, zero), m.select(unit, alternating, zero), result)


def left_shift(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """0 where the shift is not in [0, width)."""
    shift = _bounded_shift(m, y, 0)
    return m.select(_out_of_width(m, y), m.constant(0, x.dtype), m.arithmetic("shl", x, shift))


def right_shift(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """Only sign bits if the shift is not in [0, width)."""
    if x.dtype in UNSIGNED:
        return m.select(_out_of_width(m, y), m.constant(0, x.dtype), m.arithmetic("shr", x, _bounded_shift(m, y, 0)))
    return m.arithmetic("shr", x, _bounded_shift(m, y, BITS[x.dtype] - 1))


def _out_of_width(m: Body, y: Scalar) -> Scalar:
    """Negative shifts are large ones when read as unsigned."""
    if y.dtype == "ui8":
        return m.compare("ge", y, m.constant(8, y.dtype))
    negative = m.compare("lt", y, m.constant(0, y.dtype))
    return m.op("arith.ori", "i1", negative, m.compare("ge", y, m.constant(BITS[y.dtype], y.dtype)))


def _bounded_shift(m: Body, y: Scalar, otherwise: int) -> Scalar:
    return m.select(_out_of_width(m, y), m.constant(otherwise, y.dtype), y)


def shift(code: Any) -> Rule:
    def rule(b: Builder, x: Any, y: Any) -> Tensor:
        if b.results[0].dtype not in BITS:
            raise Unsupported("a shift of floats or bool")
        return to_result(code)(b, x, y)

    return rule


def bitwise_not(m: Body, x: Scalar) -> Scalar:
    return m.arithmetic("xor", x, m.constant(True if x.dtype == "i1" else -1, x.dtype))


def fmax(m: Body, x: Scalar, y: Scalar) -> Scalar:
    return _skip_nan(m, "max", x, y)


def fmin(m: Body, x: Scalar, y: Scalar) -> Scalar:
    return _skip_nan(m, "min", x, y)


def _skip_nan(m: Body, name: str, x: Scalar, y: Scalar) -> Scalar:
    """The other operand where one is NaN."""
    best = m.arithmetic(name, x, y)
    if not is_float(x.dtype):
        return best
    return m.select(m.is_nan(x), y, m.select(m.is_nan(y), x, best))


def clamped_below(m: Body, x: Scalar, low: Scalar) -> Scalar:
    """``x``, or ``low`` if it is below that: for zeros of two signs ``x``, and NaN stays. ATen's ``clamp_min`` by a
    number (``aten/src/ATen/native/cpu/TensorCompareKernel.cpp``); ``maximumf`` would return 0.0."""
    return m.select(m.compare("lt", x, low), low, x) if is_float(x.dtype) else m.max(x, low)


def clamped_above(m: Body, x: Scalar, high: Scalar) -> Scalar:
    """``x``, or ``high`` if it is above that: see ``clamped_below``."""
    return m.select(m.compare("gt", x, high), high, x) if is_float(x.dtype) else m.min(x, high)


def clamp(m: Body, x: Scalar, low: Scalar | None = None, high: Scalar | None = None) -> Scalar:
    """Bounds are numbers. The upper one wins over the lower one."""
    x = x if low is None else clamped_below(m, x, low)
    return x if high is None else clamped_above(m, x, high)


def clamp_rule(b: Builder, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """NaN propagates from each operand. An integer bound that numbers of the type do not have stays PyTorch's: -1 is
    255 among bytes, or no bound, or an error, depending on its version. Of a tensor and a bound that are zeros of
    different signs the sign of the result is not determined: eager mode takes one in vectors and the other in the
    rest."""
    require_representable(b.results[0].dtype, min, max)

    def code(m: Body, x: Scalar, low: Scalar | None, high: Scalar | None) -> Scalar:
        if low is not None:
            x = clamped_below(m, x, low) if _is_number(min) else m.max(x, low)
        if high is not None:
            x = clamped_above(m, x, high) if _is_number(max) else m.min(x, high)
        return x

    return to_result(code)(b, x, min, max)


def require_representable(dtype: str, *bounds: Any) -> None:
    """Unsupported if one of some bounds is an integer that a result of an integer type cannot be."""
    if dtype not in BITS:
        return
    bits = BITS[dtype] - (dtype not in UNSIGNED)
    least, most = 0 if dtype in UNSIGNED else -(1 << bits), (1 << bits) - 1
    for bound in bounds:
        if isinstance(bound, int) and not least <= bound <= most:
            raise Unsupported(f"{bound} as a number of type {dtype}")


def _is_number(bound: Any) -> bool:
    """Whether a bound is a number other than NaN."""
    return isinstance(bound, (int, float)) and bound == bound


def clamp_max_rule(b: Builder, x: Tensor, max: Any) -> Tensor:
    return clamp_rule(b, x, None, max)


def lerp(m: Body, start: Scalar, end: Scalar, weight: Scalar) -> Scalar:
    """Interpolates from the nearer end, so that weights 0 and 1 give the ends exactly."""
    one, difference = m.constant(1, start.dtype), m.sub(end, start)
    small = m.compare("lt", m.math("absf", weight), m.constant(0.5, start.dtype))
    from_start = m.add(start, m.mul(weight, difference))
    return m.select(small, from_start, m.sub(end, m.mul(difference, m.sub(one, weight))))


def ldexp(b: Builder, x: Tensor, exponent: Any) -> Tensor:
    """x * 2**exponent. Of a float x an integer changes the exponent, and no power overflows; else the power is of the
    type of the exponent, in which it alone may overflow."""
    result = b.results[0].dtype
    if is_float(x.dtype) and isinstance(exponent, Tensor) and not is_float(exponent.dtype) and result != "f64":
        return apply(b, (x, exponent), ("f64", "f64"), _scaled_by_power, unrounded=(1,))
    wide = compute_type(result)
    own = exponent.dtype if isinstance(exponent, Tensor) and is_float(exponent.dtype) else wide
    if own not in (result, wide) and result != wide:  # of the two half types neither
        own = wide

    def code(m: Body, v: Scalar, e: Scalar) -> Scalar:
        return m.mul(v, m.cast(m.rounded(m.math("exp2", e), own), wide))

    return apply(b, (x, exponent), (wide, wide), code, unrounded=(1,))


def _scaled_by_power(m: Body, x: Scalar, exponent: Scalar) -> Scalar:
    """For x of at most 32 bits, in float64: a larger exponent changes nothing."""
    low, high = m.constant(-_MOST_EXPONENT, "f64"), m.constant(_MOST_EXPONENT, "f64")
    return m.mul(x, m.math("exp2", m.max(m.min(exponent, high), low)))


_MOST_EXPONENT = 400.0  # float32 has numbers from 2**-149 to 2**128


_add, _sub, _rsub, _mul = *(to_result(code, 2) for code in (add, sub, rsub)), scaled(body_op("mul"))
_floor_divide, _remainder, _truncate_rest = _stepwise_rounded(floor_divide), promoted(remainder), promoted(plain("rem"))
_and, _or, _xor = (to_result(plain(name)) for name in ("and", "or", "xor"))
_max, _min, _left, _right = to_result(body_op("max")), to_result(body_op("min")), shift(left_shift), shift(right_shift)

RULES: dict[str, Rule] = {
    "aten.add.Tensor": _add,
    "aten.add.Scalar": _add,
    "aten.sub.Tensor": _sub,
    "aten.sub.Scalar": _sub,
    "aten.rsub.Tensor": _rsub,
    "aten.rsub.Scalar": _rsub,
    "aten.mul.Tensor": _mul,
    "aten.mul.Scalar": _mul,
    "aten.div.Tensor": divide,
    "aten.div.Scalar": divide,
    "aten.div.Tensor_mode": divide,
    "aten.div.Scalar_mode": divide,
    "aten.true_divide.Tensor": divide,
    "aten.floor_divide.default": _floor_divide,
    "aten.fmod.Tensor": _truncate_rest,
    "aten.fmod.Scalar": _truncate_rest,
    "aten.remainder.Tensor": _remainder,
    "aten.remainder.Scalar": _remainder,
    "aten.remainder.Scalar_Tensor": _remainder,
    "aten.pow.Tensor_Scalar": power,
    "aten.pow.Tensor_Tensor": power,
    "aten.pow.Scalar": power,
    "aten.addcmul.default": to_result(addcmul, 3),
    "aten.addcdiv.default": to_result(addcdiv, 3),
    "prims.fma.default": to_result(fused),
    "aten.lerp.Scalar": to_result(lerp),
    "aten.lerp.Tensor": to_result(lerp),
    "aten.ldexp.Tensor": ldexp,
    "aten.abs.default": to_result(absolute),
    "aten.neg.default": to_result(body_op("neg")),
    "aten.eq.Tensor": compare("eq"),
    "aten.eq.Scalar": compare("eq"),
    "aten.ne.Tensor": compare("ne"),
    "aten.ne.Scalar": compare("ne"),
    "aten.lt.Tensor": compare("lt"),
    "aten.lt.Scalar": compare("lt"),
    "aten.le.Tensor": compare("le"),
    "aten.le.Scalar": compare("le"),
    "aten.gt.Tensor": compare("gt"),
    "aten.gt.Scalar": compare("gt"),
    "aten.ge.Tensor": compare("ge"),
    "aten.ge.Scalar": compare("ge"),
    "aten.bitwise_and.Tensor": _and,
    "aten.bitwise_and.Scalar": _and,
    "aten.bitwise_and.Scalar_Tensor": _and,
    "aten.bitwise_or.Tensor": _or,
    "aten.bitwise_or.Scalar": _or,
    "aten.bitwise_or.Scalar_Tensor": _or,
    "aten.bitwise_xor.Tensor": _xor,
    "aten.bitwise_xor.Scalar": _xor,
    "aten.bitwise_xor.Scalar_Tensor": _xor,
    "aten.bitwise_not.default": to_result(bitwise_not),
    "aten.bitwise_left_shift.Tensor": _left,
    "aten.bitwise_left_shift.Tensor_Scalar": _left,
    "aten.bitwise_left_shift.Scalar_Tensor": _left,
    "aten.__lshift__.Tensor": _left,
    "aten.__lshift__.Scalar": _left,
    "aten.bitwise_right_shift.Tensor": _right,
    "aten.bitwise_right_shift.Tensor_Scalar": _right,
    "aten.bitwise_right_shift.Scalar_Tensor": _right,
    "aten.__rshift__.Tensor": _right,
    "aten.__rshift__.Scalar": _right,
    "aten.logical_and.default": logical(plain("and")),
    "aten.logical_or.default": logical(plain("or")),
    "aten.logical_xor.default": logical(plain("xor")),
    "aten.logical_not.default": logical(body_op("logical_not")),
    "aten.maximum.default": _max,
    "aten.minimum.default": _min,
    "aten.fmax.default": to_result(fmax),
    "aten.fmin.default": to_result(fmin),
    "aten.clamp.default": clamp_rule,
    "aten.clamp_min.default": clamp_rule,
    "aten.clamp_min.Tensor": _max,
    "aten.clamp_max.default": clamp_max_rule,
    "aten.clamp_max.Tensor": _min,
}
