"""Functions of f64 numbers, within 2 ulp, for f64 results: eager mode vectorises them too. exp, log, tanh and erf,
which f32 functions use as well, are in `functions_f64`."""

from __future__ import annotations

import math

from symshape.codegen.cpu.vector_math.floats import Floats
from symshape.codegen.cpu.vector_math.functions_f64 import log_of, signed_power, split_log
from symshape.machine import coefficients as fit

# pi/2 in three parts. Up to 2**29 what is left of x after the first is exact: a multiple of 2**-53 below 1.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_QUARTER_PI, _QUARTER_PI_LOW = 0.7853981633974483, 3.061616997868383e-17
_LN2_HIGH, _LN2_LOW = 0.6931471805599453, 2.3190468138462996e-17


def _quadrant(m: Floats, x: str) -> tuple[str, str, str]:
    """n, and the sine and cosine of r, where x = n*pi/2 + r and |r| <= pi/4."""
    n = m.op("math.roundeven", m.mul(x, 2 / math.pi))
    r = x
    for part in _HALF_PI:
        r = m.fma(n, -part, r)
    square = m.mul(r, r)
    sine = m.fma(m.mul(m.polynomial(fit.SIN_F64, square), square), r, r)
    half = m.mul(square, 0.5)
    rest = m.sub(1.0, half)  # 1 - half as a sum of two numbers
    lost = m.sub(m.sub(1.0, rest), half)
    return n, sine, m.add(rest, m.fma(m.mul(square, square), m.polynomial(fit.COS_F64, square), lost))


def _is_odd(m: Floats, n: str) -> tuple[str, str]:
    """floor(n/2), and whether n is odd."""
    half = m.mul(n, 0.5)
    floor = m.op("math.floor", half)
    return floor, m.compare("one", half, floor)


def trigonometric(m: Floats, x: str, shift: float) -> str:
    """sin (shift 0) or cos (shift 1), up to |x| = 2**29."""
    n, sine, cosine = _quadrant(m, x)
    pair, odd = _is_odd(m, m.add(n, shift) if shift else n)
    _, negative = _is_odd(m, pair)
    y = m.select(odd, cosine, sine)
    return m.select(negative, m.sub(-0.0, y), y)


def tan(m: Floats, x: str) -> str:
    """sin/cos, or -cos/sin in odd quadrants, up to |x| = 2**29."""
    n, sine, cosine = _quadrant(m, x)
    _, odd = _is_odd(m, n)
    return m.div(m.select(odd, m.sub(-0.0, cosine), sine), m.select(odd, sine, cosine))


def _half_expm1(m: Floats, x: str) -> tuple[str, str, str]:
    """n, p and (e**x - 1)/2, where e**x = 2**n * (1 + p)."""
    n = m.op("math.roundeven", m.mul(x, 1.4426950408889634))
    r = m.fma(n, -_LN2_LOW, m.fma(n, -_LN2_HIGH, x))
    p = m.fma(m.polynomial(fit.EXPM1_F64, r), m.mul(r, r), r)
    half = m.exponent(m.sub(n, 1.0))
    return n, p, m.fma(half, p, m.sub(half, 0.5))


def expm1(m: Floats, x: str) -> str:
    """e**x - 1."""
    bounded = m.op("arith.maximumf", m.op("arith.minimumf", x, 710.0), -50.0)
    y = _half_expm1(m, bounded)[2]
    return m.op("math.copysign", m.add(y, y), x)


def exp2(m: Floats, x: str) -> str:
    """2**x."""
    none = m.compare("olt", x, -1075.0)  # half of the smallest subnormal; see `functions._exp`
    x = m.select(none, 0.0, m.op("arith.minimumf", x, 1030.0))
    n = m.op("math.roundeven", x)
    y = m.scale(m.polynomial(fit.EXP_F64, m.mul(m.sub(x, n), 0.6931471805599453)), n)
    return m.select(none, 0.0, y)


def sinh(m: Floats, x: str) -> str:
    """y + y/(2*y + 1) where y = (e**a - 1)/2, which overflows later than e**a."""
    a = m.op("arith.minimumf", m.abs(x), 712.0)
    n, p, y = _half_expm1(m, a)
    y = m.add(y, m.div(y, m.add(m.add(y, y), 1.0)))
    y = m.select(m.compare("ogt", a, 709.0), m.scale(m.add(p, 1.0), m.sub(n, 1.0)), y)
    return m.op("math.copysign", y, x)


def log1p(m: Floats, x: str) -> str:
    """log(u) with u = 1 + x rounded; what the rounding lost is added to the reduced argument (Kahan's idea)."""
    u = m.add(x, 1.0)
    part = m.sub(u, 1.0)
    lost = m.add(m.sub(1.0, m.sub(u, part)), m.sub(x, part))
    e, f = split_log(m, u)
    shift = m.power_of_two(m.int_op("maxsi", m.int_op("subi", 0, e), -1022))
    return m.op("math.copysign", log_of(m, u, m.to_float(e), m.fma(lost, shift, f)), x)


def atanh(m: Floats, x: str) -> str:
    """log1p(2*a/(1 - a))/2."""
    a = m.abs(x)
    y = log1p(m, m.div(m.add(a, a), m.sub(1.0, a)))
    return m.op("math.copysign", m.mul(y, 0.5), x)


def _angle(m: Floats, a: str, b: str) -> tuple[str, str]:
    """k and t with atan(a/b) = k*pi/4 + atan(t), |t| <= tan(pi/8), for numbers that are not negative."""
    low, high = m.op("arith.minimumf", a, b), m.op("arith.maximumf", a, b)
    steep, infinite = m.compare("ogt", a, b), m.compare("oeq", low, math.inf)
    diagonal = m.both("ori", m.compare("ogt", low, m.mul(high, 0.41421356237309503)), infinite)
    above, below = m.select(diagonal, m.sub(low, high), low), m.select(diagonal, m.add(low, high), high)
    t = m.div(above, below)
    t = m.select(m.both("ori", m.compare("oeq", high, 0.0), infinite), 0.0, t)
    k = m.select(diagonal, 1.0, 0.0)
    return m.select(steep, m.sub(2.0, k), k), m.select(steep, m.sub(-0.0, t), t)


def _atan_of(m: Floats, k: str, t: str) -> str:
    """k*pi/4 + atan(t)."""
    square, high = m.mul(t, t), m.mul(k, _QUARTER_PI)
    low = m.fma(k, _QUARTER_PI_LOW, m.fma(k, _QUARTER_PI, m.sub(-0.0, high)))
    return m.add(high, m.add(t, m.fma(m.mul(m.polynomial(fit.ATAN_F64, square), square), t, low)))


def atan(m: Floats, x: str) -> str:
    """As the angle of the point (1, x)."""
    return m.op("math.copysign", _atan_of(m, *_angle(m, m.abs(x), m.constant(1.0))), x)


def atan2(m: Floats, y: str, x: str) -> str:
    """The angle of the point (x, y), with C's values at zeros and infinities."""
    a, b = m.abs(y), m.abs(x)
    scale = m.select(m.compare("ogt", m.op("arith.maximumf", a, b), 2.0**1000), 2.0**-100, 1.0)  # a + b is finite
    k, t = _angle(m, m.mul(a, scale), m.mul(b, scale))
    negative = m.int_compare("slt", m.bits(x), 0)  # also -0
    k, t = m.select(negative, m.sub(4.0, k), k), m.select(negative, m.sub(-0.0, t), t)
    return m.op("math.copysign", _atan_of(m, k, t), y)


def _leg(m: Floats, x: str) -> str:
    """sqrt(1 - x*x)."""
    return m.op("math.sqrt", m.mul(m.sub(1.0, x), m.add(1.0, x)))


def asin(m: Floats, x: str) -> str:
    """The angle of the point (sqrt(1 - x*x), x)."""
    return atan2(m, x, _leg(m, x))


def acos(m: Floats, x: str) -> str:
    """The angle of the point (x, sqrt(1 - x*x))."""
    return atan2(m, _leg(m, x), x)


def cosh(m: Floats, x: str) -> str:
    """y + 1/2 + 1/(2*(2*y + 1)) where y = (e**a - 1)/2, which overflows later than e**a."""
    a = m.op("arith.minimumf", m.abs(x), 712.0)
    n, p, y = _half_expm1(m, a)
    y = m.add(y, m.add(m.div(0.5, m.add(m.add(y, y), 1.0)), 0.5))
    return m.select(m.compare("ogt", a, 709.0), m.scale(m.add(p, 1.0), m.sub(n, 1.0)), y)


# Each in two parts, of which the first has zeros at its end: FreeBSD's e_log2.c and e_log10.c.
_LOG2_E = (1.44269504072144627571, 1.67517131648865118353e-10)
_LOG10_E = (4.34294481878168880939e-01, 2.50829467116452752298e-11)
_LOG10_2 = (3.01029995663611771306e-01, 3.69423907715893078616e-13)


def _logarithm(m: Floats, x: str, factor: tuple[float, float], step: tuple[float, float]) -> str:
    """e*step + log(1 + f)*factor where x = 2**e * (1 + f): the factors and the larger part of log(1 + f) are so short
    that their product is exact."""
    tiny = m.compare("olt", x, 2.0**-1022)
    whole, f = split_log(m, m.select(tiny, m.mul(x, 2.0**52), x))
    e = m.add(m.to_float(whole), m.select(tiny, -52.0, 0.0))
    s = m.div(f, m.add(f, 2.0))
    square, half = m.mul(s, s), m.mul(m.mul(f, f), 0.5)
    rest = m.mul(s, m.add(half, m.mul(m.polynomial(fit.LOG_F64, square), square)))
    high = m.from_bits(m.int_op("andi", m.bits(m.sub(f, half)), -(1 << 32)))
    low = m.add(m.sub(m.sub(f, high), half), rest)
    large, steps = m.mul(high, factor[0]), m.mul(e, step[0])
    small = m.add(m.mul(m.add(low, high), factor[1]), m.mul(low, factor[0]))
    total = m.add(steps, large)
    lost = m.add(m.sub(steps, total), large)
    y = m.add(m.add(m.fma(e, step[1], small), lost), total)
    y = m.select(m.compare("oeq", x, math.inf), math.inf, y)
    y = m.select(m.compare("oeq", x, 0.0), -math.inf, y)
    return m.select(m.compare("ult", x, 0.0), math.nan, y)


def log2(m: Floats, x: str) -> str:
    """The logarithm to base 2, exact for powers of 2."""
    return _logarithm(m, x, _LOG2_E, (1.0, 0.0))


def log10(m: Floats, x: str) -> str:
    """The logarithm to base 10."""
    return _logarithm(m, x, _LOG10_E, _LOG10_2)


_LN2 = (6.93147180559890330187e-01, 5.49792301870837115524e-14)  # the first times an exponent is exact: e_log.c
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_Pair = tuple[str, str]  # their sum; the second is about what was lost when the first was rounded


def _sum(m: Floats, large: str | float, small: str, low: str | float = 0.0) -> _Pair:
    """large + small + low, where |large| >= |small|, or large is 0."""
    high = m.add(large, small)
    return high, m.add(m.sub(small, m.sub(high, large)), low)


def _product(m: Floats, left: _Pair, right: _Pair) -> _Pair:
    high = m.mul(left[0], right[0])
    low = m.fma(left[0], right[0], m.sub(-0.0, high))
    return high, m.fma(left[0], right[1], m.fma(left[1], right[0], low))


def _log_pair(m: Floats, a: str) -> _Pair:
    """The logarithm of a positive finite number: e*log(2) + s*(2 + z*(2/3 + z*tail)) with s = f/(2 + f) and z = s*s.
    What the tail adds is so small that its rounding does not count; the rest is computed with pairs."""
    tiny = m.compare("olt", a, 2.0**-1022)
    whole, f = split_log(m, m.select(tiny, m.mul(a, 2.0**52), a))
    e = m.add(m.to_float(whole), m.select(tiny, -52.0, 0.0))
    divisor = _sum(m, 2.0, f)
    inverse = m.div(1.0, divisor[0])
    quotient = m.mul(f, inverse)
    negative = m.sub(-0.0, quotient)
    rest = m.fma(negative, divisor[1], m.fma(negative, divisor[0], f))
    s = (quotient, m.mul(rest, inverse))
    z = _product(m, s, s)
    tail = m.mul(z[0], m.polynomial(fit.ATANH_TAIL_F64, z[0]))
    term = _product(m, z, _sum(m, _TWO_THIRDS[0], tail, _TWO_THIRDS[1]))
    high, low = _product(m, s, _sum(m, 2.0, *term))
    return _sum(m, m.mul(e, _LN2[0]), high, m.fma(e, _LN2[1], low))


def _exp_of_pair(m: Floats, high: str, low: str) -> str:
    """e**(high + low); a power that is a f64 number comes out as that number."""
    none = m.compare("olt", high, -745.1333)  # half of the smallest subnormal; see `functions._exp`
    x = m.select(none, 0.0, m.op("arith.minimumf", high, 710.0))
    n = m.op("math.roundeven", m.mul(x, 1.4426950408889634))
    r, rest = _sum(m, m.fma(n, -_LN2_HIGH, x), m.fma(n, -_LN2_LOW, low))
    p = m.add(r, m.fma(m.polynomial(fit.EXPM1_F64, r), m.mul(r, r), rest))
    return m.select(none, 0.0, m.scale(m.add(p, 1.0), n))


def pow(m: Floats, x: str, y: str) -> str:
    """exp(y*log|x|) with a logarithm of twice the digits: y makes its error up to 745 times as large."""
    a = m.abs(x)
    logarithm = _log_pair(m, a)
    high = m.mul(y, logarithm[0])
    low = m.fma(y, logarithm[1], m.fma(y, logarithm[0], m.sub(-0.0, high)))
    low = m.select(m.compare("olt", m.abs(high), 800.0), low, 0.0)  # not defined where the product is not finite
    edge = m.both("ori", m.compare("oeq", a, 0.0), m.compare("uge", a, math.inf))
    limit = m.mul(y, m.select(m.compare("oeq", a, 0.0), -math.inf, a))  # NaN for NaN
    return signed_power(m, x, y, _exp_of_pair(m, m.select(edge, limit, high), m.select(edge, 0.0, low)))
