"""Functions in f64: exp, log, tanh and erf to the last bits, and those whose f32 form is computed in f64 (so that
cancellation and argument reduction need no care; the result is then rounded once)."""

from __future__ import annotations

import math
from collections.abc import Callable

from symshape.codegen.cpu.vector_math.floats import Floats
from symshape.machine import coefficients as fit

_INF, _NAN = math.inf, math.nan
_LN2_HIGH, _LN2_LOW = 0.6931471805599453, 2.3190468138462996e-17
_HALF_PI_HIGH, _HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
_SMALLEST_NORMAL = 2.0**-1022


# Numerators and denominators of minimax quotients, highest power first: those of Moshier's Cephes (tanh.c, ndtr.c).
_TANH = (
    (-0.9643991794250523, -99.28772310019185, -1614.6876844170845),
    (1.0, 112.81167849163293, 2235.4883906010045, 4844.063053251255),
)
_ERF = (
    (9.604973739870516, 90.02601972038427, 2232.005345946843, 7003.325141128051, 55592.30130103949),
    (1.0, 33.56171416475031, 521.3579497801527, 4594.323829709801, 22629.000061389095, 49267.39426086359),
)
_ERFC = (
    (2.461969814735305e-10, 0.5641895648310689, 7.463210564422699, 48.63719709856814, 196.5208329560771,
     526.4451949954773, 934.5285271719576, 1027.5518868951572, 557.5353353693994),
    (1.0, 13.228195115474499, 86.70721408859897, 354.9377788878199, 975.7085017432055, 1823.9091668790973,
     2246.3376081871097, 1656.6630919416134, 557.5353408177277),
)  # fmt: skip


def exp(m: Floats, x: str) -> str:
    """e**x."""
    none = m.compare("olt", x, -745.1333)  # half of the smallest subnormal; see `functions._exp`
    x = m.select(none, 0.0, m.op("arith.minimumf", x, 710.0))
    n = m.op("math.roundeven", m.mul(x, 1.4426950408889634))
    r = m.fma(n, -_LN2_LOW, m.fma(n, -_LN2_HIGH, x))
    return m.select(none, 0.0, m.scale(m.polynomial(fit.EXP_F64, r), n))


def split_log(m: Floats, x: str) -> tuple[str, str]:
    """e (an integer) and f with x = 2**e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive normal x."""
    bits = m.bits(x)
    e = m.int_op("shrsi", m.int_op("subi", bits, 0x3FE6A09E667F3BCD), 52)
    return e, m.sub(m.from_bits(m.int_op("subi", bits, m.int_op("shli", e, 52))), 1.0)


def log_of(m: Floats, x: str, exponent: str, f: str) -> str:
    """The logarithm of x = 2**exponent * (1 + f): 2*atanh(f/(2 + f)), arranged as in fdlibm's e_log.c."""
    s = m.div(f, m.add(f, 2.0))
    square, half = m.mul(s, s), m.mul(m.mul(f, f), 0.5)
    rest = m.mul(m.polynomial(fit.LOG_F64, square), square)
    inner = m.fma(s, m.add(half, rest), m.mul(exponent, _LN2_LOW))
    y = m.fma(exponent, _LN2_HIGH, m.sub(f, m.sub(half, inner)))
    y = m.select(m.compare("oeq", x, _INF), _INF, y)
    y = m.select(m.compare("oeq", x, 0.0), -_INF, y)
    return m.select(m.compare("ult", x, 0.0), _NAN, y)


def log(m: Floats, x: str) -> str:
    """The natural logarithm."""
    tiny = m.compare("olt", x, _SMALLEST_NORMAL)
    e, f = split_log(m, m.select(tiny, m.mul(x, 2.0**52), x))
    return log_of(m, x, m.add(m.to_float(e), m.select(tiny, -52.0, 0.0)), f)


def tanh(m: Floats, x: str) -> str:
    """x + x**3*P/Q of squares up to 0.625, then 1 - 2/(e**2a + 1)."""
    a, square = m.abs(x), m.mul(x, x)
    near = m.fma(m.mul(x, square), _quotient(m, _TANH, square), x)
    far = m.sub(1.0, m.div(2.0, m.add(exp(m, m.add(a, a)), 1.0)))
    return m.op("math.copysign", m.select(m.compare("olt", a, 0.625), near, far), x)  # of -0.0, too


def erf(m: Floats, x: str) -> str:
    """x*T/U of squares up to 1, then 1 - e**(-a*a)*P/Q of a, which is 1 from 6 on."""
    a, square = m.op("arith.minimumf", m.abs(x), 6.0), m.mul(x, x)
    near = m.mul(x, _quotient(m, _ERF, square))
    rest = m.mul(exp(m, m.sub(-0.0, m.mul(a, a))), _quotient(m, _ERFC, a))
    far = m.op("math.copysign", m.sub(1.0, rest), x)
    return m.select(m.compare("olt", a, 1.0), near, far)


def _quotient(m: Floats, pair: tuple[tuple[float, ...], tuple[float, ...]], x: str) -> str:
    numerator, denominator = pair
    return m.div(m.polynomial(numerator, x), m.polynomial(denominator, x))


def reduce_quadrant(m: Floats, x: str) -> tuple[str, str]:
    """n, r with x = n*pi/2 + r, |r| <= pi/4."""
    n = m.op("math.roundeven", m.mul(x, 2 / math.pi))
    return n, m.fma(n, -_HALF_PI_LOW, m.fma(n, -_HALF_PI_HIGH, x))


def tan(m: Floats, x: str) -> str:
    """sin/cos of the reduced argument, or -cos/sin in odd quadrants."""
    n, r = reduce_quadrant(m, x)
    square = m.mul(r, r)
    sine = m.fma(m.mul(m.polynomial(_SIN, square), square), r, r)
    cosine = m.fma(m.polynomial(_COS, square), square, 1.0)
    half = m.mul(n, 0.5)
    odd = m.compare("one", half, m.op("math.floor", half))
    return m.div(m.select(odd, m.sub(-0.0, cosine), sine), m.select(odd, sine, cosine))


_SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(7, 0, -1))  # Taylor: 2**-40 at pi/4
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(7, 0, -1))


def _atan_unit(m: Floats, t: str) -> str:
    square = m.mul(t, t)
    return m.fma(m.mul(m.polynomial(fit.ATAN, square), square), t, t)


def atan(m: Floats, x: str) -> str:
    """pi/2 - atan(1/x) beyond 1."""
    a = m.abs(x)
    large = m.compare("ogt", a, 1.0)
    y = _atan_unit(m, m.select(large, m.div(1.0, a), a))
    return m.op("math.copysign", m.select(large, m.sub(math.pi / 2, y), y), x)


def atan2(m: Floats, y: str, x: str) -> str:
    """The angle of the point (x, y), with C's values at zeros and infinities."""
    a, b = m.abs(y), m.abs(x)
    low, high = m.op("arith.minimumf", a, b), m.op("arith.maximumf", a, b)
    t = m.div(low, high)
    t = m.select(m.compare("oeq", high, 0.0), 0.0, t)
    t = m.select(m.compare("oeq", low, _INF), 1.0, t)
    angle = _atan_unit(m, t)
    angle = m.select(m.compare("ogt", a, b), m.sub(math.pi / 2, angle), angle)
    negative = m.int_compare("slt", m.bits(x), 0)  # also -0
    return m.op("math.copysign", m.select(negative, m.sub(math.pi, angle), angle), y)


def asin(m: Floats, x: str) -> str:
    """atan(x / sqrt(1 - x*x))."""
    return atan(m, m.div(x, m.op("math.sqrt", m.mul(m.sub(1.0, x), m.add(1.0, x)))))


def acos(m: Floats, x: str) -> str:
    """2*atan(sqrt((1 - x)/(1 + x)))."""
    return m.mul(atan(m, m.op("math.sqrt", m.div(m.sub(1.0, x), m.add(1.0, x)))), 2.0)


def _odd(m: Floats, x: str, limit: float, series: tuple[float, float], far: Callable[[str], str]) -> str:
    """An odd function: x + series below the limit, else far(|x|) with x's sign."""
    a, square = m.abs(x), m.mul(x, x)
    near = m.fma(m.mul(m.polynomial(series, square), square), x, x)
    return m.op("math.copysign", m.select(m.compare("olt", a, limit), near, far(a)), x)


def sinh(m: Floats, x: str) -> str:
    """(e**a - e**-a)/2."""

    def far(a: str) -> str:
        e = exp(m, a)
        return m.mul(m.sub(e, m.div(1.0, e)), 0.5)

    return _odd(m, x, 0.1, (1 / 120, 1 / 6), far)


def cosh(m: Floats, x: str) -> str:
    """(e**a + e**-a)/2."""
    e = exp(m, m.abs(x))
    return m.mul(m.add(e, m.div(1.0, e)), 0.5)


def asinh(m: Floats, x: str) -> str:
    """log(a + sqrt(a*a + 1))."""
    return _odd(m, x, 0.03, (3 / 40, -1 / 6), lambda a: log(m, m.add(a, m.op("math.sqrt", m.fma(a, a, 1.0)))))


def acosh(m: Floats, x: str) -> str:
    """log(x + sqrt(x*x - 1))."""
    y = log(m, m.add(x, m.op("math.sqrt", m.mul(m.sub(x, 1.0), m.add(x, 1.0)))))
    return m.select(m.compare("olt", x, 1.0), _NAN, y)


def atanh(m: Floats, x: str) -> str:
    """log((1 + a)/(1 - a))/2."""
    return _odd(m, x, 0.03, (1 / 5, 1 / 3), lambda a: m.mul(log(m, m.div(m.add(1.0, a), m.sub(1.0, a))), 0.5))


def cbrt(m: Floats, x: str) -> str:
    """exp(log(a)/3)."""
    return m.op("math.copysign", exp(m, m.mul(log(m, m.abs(x)), 1 / 3)), x)


def erfc(m: Floats, x: str) -> str:
    """exp(-a*a)*Q((a - 2)/(a + 2)), and 2 minus that for negative x."""
    a = m.op("arith.minimumf", m.abs(x), 10.5)
    t = m.div(m.sub(a, 2.0), m.add(a, 2.0))
    y = m.mul(m.polynomial(fit.ERFCX, t), exp(m, m.sub(-0.0, m.mul(a, a))))
    return m.select(m.compare("olt", x, 0.0), m.sub(2.0, y), y)


def pow(m: Floats, x: str, y: str) -> str:
    """exp(y*log|x|). The operands are f32 numbers."""
    a = m.abs(x)
    return signed_power(m, x, y, exp(m, m.mul(y, log(m, a))))


def signed_power(m: Floats, x: str, y: str, power: str) -> str:
    """``power``, which is |x|**y, with the sign and the special values of C99 F.9.4.4."""
    a = m.abs(x)
    whole = m.compare("oeq", m.op("math.trunc", y), y)
    half = m.mul(y, 0.5)
    odd = m.both("andi", whole, m.compare("one", m.op("math.trunc", half), half))
    negative = m.int_compare("slt", m.bits(x), 0)
    power = m.select(m.compare("oeq", a, 1.0), m.select(m.compare("uno", y, y), _NAN, 1.0), power)
    power = m.select(m.both("andi", negative, odd), m.sub(-0.0, power), power)
    below = m.both("andi", m.compare("olt", x, 0.0), m.compare("one", a, _INF))
    power = m.select(m.both("andi", below, m.compare("one", m.op("math.trunc", y), y)), _NAN, power)
    one = m.both("ori", m.compare("oeq", x, 1.0), m.compare("oeq", y, 0.0))
    return m.select(one, 1.0, power)


EXPANSIONS: dict[str, Callable[..., str]] = {
    "atan": atan,
    "atan2": atan2,
    "asin": asin,
    "acos": acos,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "cbrt": cbrt,
    "erfc": erfc,
    "powf": pow,
}
