"""Rules of special functions: polynomial fits on intervals, series and reflection formulas.

Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions; the fits are our own (bench/fit_special.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from symshape.passes.lowering.aten import special_coefficients as fit
from symshape.passes.lowering.aten.builder import Builder, Tensor
from symshape.passes.lowering.aten.float64_numbers import Real, polynomial, special
from symshape.passes.lowering.aten.rule_combinators import Rule

INFINITY, NAN = math.inf, math.nan
SQRT_HALF = math.sqrt(0.5)
# B_2, B_4, ...: the coefficients of the asymptotic series of the gamma functions
BERNOULLI = tuple(map(Fraction, ("1/6", "-1/30", "1/42", "-1/30", "5/66", "-691/2730", "7/6", "-3617/510")))
TERMS = 6  # of a zeta function that are summed, before its asymptotic series
SHIFT = 10  # arguments below are moved up by so much, where the series is exact
SINE, COSINE = (  # of pi*x up to a half
    [(-1.0) ** k * math.pi ** (2 * k + odd) / math.factorial(2 * k + odd) for k in range(11)][::-1] for odd in (1, 0)
)


def scaled_i(order: int, x: Real) -> Real:
    """exp(-|x|) * I(x) of order 0 or 1."""
    a = abs(x)
    near = polynomial((fit.I0_NEAR, fit.I1_NEAR)[order], a.at_most(8.0) * 0.25 - 1.0)
    r = 1.0 / a.at_least(8.0)
    far = polynomial((fit.I0_FAR, fit.I1_FAR)[order], r * 16.0 - 1.0) * r.math("sqrt")
    return a.where("le", 8.0, near * x if order else near, x.where("lt", 0.0, -far, far) if order else far)


def bessel_i(order: int, x: Real) -> Real:
    return scaled_i(order, x) * abs(x).math("exp")


def bessel_k(order: int, scaled: bool, x: Real) -> Real:
    """K of order 0 or 1, by exp(x) where ``scaled``; infinite at 0, NaN below."""
    low = x.at_most(2.0)
    log = (low * 0.5).math("log")
    t = low * low * 0.5 - 1.0
    if order:
        near = log * bessel_i(1, low) + polynomial(fit.K1_NEAR, t) / low
    else:
        near = polynomial(fit.K0_NEAR, t) - log * bessel_i(0, low)
    r = 1.0 / x.at_least(2.0)
    far = polynomial((fit.K0_FAR, fit.K1_FAR)[order], r * 4.0 - 1.0) * r.math("sqrt")
    if scaled:
        near = near * low.math("exp")
    else:
        far = far * (-x).math("exp")
    return x.where("eq", 0.0, INFINITY, x.where("lt", 0.0, NAN, x.where("le", 2.0, near, far)))


def _waves(order: int, a: Real) -> tuple[Real, Real]:
    """J and Y beyond 8: sqrt(2/(pi*x)) * (P*cos - Q*sin, P*sin + Q*cos) of x - (2*order + 1)*pi/4."""
    a = a.at_least(8.0)
    r = 8.0 / a
    t = r * r * 2.0 - 1.0
    p = polynomial((fit.COSINE_0, fit.COSINE_1)[order], t)
    q = polynomial((fit.SINE_0, fit.SINE_1)[order], t) * r
    sin, cos = a.math("sin") * SQRT_HALF, a.math("cos") * SQRT_HALF
    c, s = (sin - cos, -(sin + cos)) if order else (sin + cos, sin - cos)
    amplitude = (2.0 / math.pi / a).math("sqrt")
    return amplitude * (p * c - q * s), amplitude * (p * s + q * c)


def bessel_j(order: int, x: Real) -> Real:
    a = abs(x)
    low = a.at_most(8.0)
    near = polynomial((fit.J0_NEAR, fit.J1_NEAR)[order], low * low / 32.0 - 1.0)
    result = a.where("le", 8.0, near * low if order else near, _waves(order, a)[0])
    return x.where("lt", 0.0, -result, result) if order else result


def bessel_y(order: int, x: Real) -> Real:
    """-infinity at 0, NaN below and at infinity, as eager has it."""
    low = x.at_most(8.0)
    t = low * low / 32.0 - 1.0
    j = bessel_j(order, low)
    if order:
        near = low * polynomial(fit.Y1_NEAR, t) + 2.0 / math.pi * (low.math("log") * j - 1.0 / low)
    else:
        near = polynomial(fit.Y0_NEAR, t) + 2.0 / math.pi * low.math("log") * j
    positive = x.where("le", 8.0, near, _waves(order, x)[1])
    return x.where("eq", 0.0, -INFINITY, x.where("lt", 0.0, NAN, positive))


def spherical_j0(x: Real) -> Real:
    square = x * x
    series = polynomial([1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0], square)
    wave = x.math("sin") / x
    return abs(x).where("eq", INFINITY, 0.0, abs(x).where("lt", 0.1, series, wave))


def erfcx(x: Real) -> Real:
    """exp(x*x) * erfc(x)."""
    a = abs(x)
    y = 2.0 / (a + 2.0)
    positive = polynomial(fit.ERFCX_OVER, y * 2.0 - 1.0) * y
    return x.where("lt", 0.0, 2.0 * (x * x).math("exp") - positive, positive)


def _times_inverse_erf(x: Real, w: Real) -> Real:
    """x*erfinv(y)/y where w = -log(1 - y*y)."""
    s = w.math("sqrt")
    near = polynomial(fit.ERFINV_NEAR, w.at_most(6.0) * (1 / 3) - 1.0)
    middle = polynomial(fit.ERFINV_MIDDLE, (s.at_least(2.4).at_most(6.0) - 4.2) * (1 / 1.8)) * s
    far = polynomial(fit.ERFINV_FAR, (s.at_least(6.0) - 16.75) * (1 / 10.75)) * s
    return x * w.where("le", 6.0, near, s.where("le", 6.0, middle, far))


def _times_inverse_erf_of_float32(x: Real, w: Real) -> Real:
    """As ``_times_inverse_erf``, for a float32 y, whose w is at most 23*log(2). A power of 2 of the factor is applied
    separately, so that the rest has a smaller rounding error."""
    near = polynomial(fit.ERFINV_NEAR_F32, w.at_most(6.0) * (1 / 3) - 1.0)
    middle = polynomial(fit.ERFINV_MIDDLE_F32, (w.at_least(6.0).math("sqrt") - 3.2) * 1.25)
    return w.where("le", 6.0, near, middle).math("fma", x, w.where("le", 6.0, x, x + x))


def erfinv(times: Callable[[Real, Real], Real], x: Real) -> Real:
    """``times``: x*erfinv(x)/x by x and -log(1 - x*x)."""
    w = -((1.0 - x) * (1.0 + x)).math("log")
    inside = times(x, w)
    return abs(x).where("eq", 1.0, x * INFINITY, abs(x).where("gt", 1.0, NAN, inside))


def ndtri(p: Real) -> Real:
    """The argument at which the normal distribution's cumulative probability is p."""
    q = 2.0 * p
    w = -(q * (2.0 - q)).math("log")
    inside = _times_inverse_erf(-math.sqrt(2.0) * (1.0 - q), w)
    ends = p.where("eq", 0.0, -INFINITY, p.where("eq", 1.0, INFINITY, inside))
    return p.where("lt", 0.0, NAN, p.where("gt", 1.0, NAN, ends))


def sine_and_cosine(x: Real) -> tuple[Real, Real]:
    """sin(pi*x) and cos(pi*x), up to a common sign. Two Taylor series, since there is no vectorised float64 sine: each
    lane would call a library."""
    turns = x - x.math("roundeven")
    square = turns * turns
    return polynomial(SINE, square) * turns, polynomial(COSINE, square)


def lgamma(x: Real) -> Real:
    """log(abs(gamma(x))): polynomials up to 8, relative to the zeros at 1 and 2, where differences of large numbers
    would lose digits; Stirling's series beyond; the reflection formula below a half; infinite at 0 and the negative
    integers.

    Logarithms cost most of it: one is Stirling's, the other the reflection's.
    """
    mirrored = x.where("lt", 0.5, 1.0 - x, x)
    z = mirrored.at_least(8.0)
    r = 1.0 / z
    series = polynomial([float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(BERNOULLI, 1)][::-1], r * r) * r
    stirling = (z - 0.5) * z.math("log") - z + 0.5 * math.log(2 * math.pi) + series
    near = (mirrored - 1.0) * polynomial(fit.LGAMMA_NEAR, (mirrored.at_most(3.0) - 1.75) * 0.8)
    middle = polynomial(fit.LGAMMA_MIDDLE, (mirrored.at_least(3.0).at_most(8.0) - 5.5) * 0.4)
    low = (mirrored - 2.0) * mirrored.where("le", 3.0, near, middle)
    result = mirrored.where("eq", 1.0, 0.0, mirrored.where("lt", 8.0, low, stirling))
    sine, _ = sine_and_cosine(x)
    reflected = math.log(math.pi) - abs(sine).math("log") - result
    result = x.where("lt", 0.5, x.where("eq", x.math("floor"), INFINITY, reflected), result)
    return abs(x).where("eq", INFINITY, INFINITY, result)


def digamma(x: Real) -> Real:
    """The derivative of log(gamma(x)); at 0 infinite with the sign of -x, NaN at the negative integers."""
    mirrored = x.where("lt", 0.5, 1.0 - x, x)
    small = mirrored.at_most(float(SHIFT))
    steps = small.of(0.0)
    for k in range(SHIFT):
        steps = steps + 1.0 / (small + float(k))
    is_small = partial(mirrored.where, "lt", float(SHIFT))
    z = is_small(mirrored + float(SHIFT), mirrored)
    r = 1.0 / z
    series = polynomial([*[float(b / (2 * k)) for k, b in enumerate(BERNOULLI, 1)][::-1], 0.0], r * r)
    result = z.math("log") - 0.5 * r - series
    result = is_small(result - steps, result)
    sine, cosine = sine_and_cosine(x)
    reflected = result - math.pi * cosine / sine
    at_pole = x.where("eq", 0.0, x.of(INFINITY).math("copysign", -x), NAN)
    return x.where("lt", 0.5, x.where("eq", x.math("floor"), at_pole, reflected), result)


def polygamma(n: int, x: Real) -> Real:
    """The n-th derivative of digamma: (-1)**(n+1) * n! * zeta(n + 1, x), by Euler's and Maclaurin's sum."""
    sign = (-1.0) ** (n + 1)
    mirrored = x.where("lt", 0.5, 1.0 - x, x)
    total = mirrored.of(0.0)
    for k in range(SHIFT):
        total = total + _power(1.0 / (mirrored + float(k)), n + 1)
    r = 1.0 / (mirrored + float(SHIFT))
    tail, rising = 1.0 / n / r + 0.5, Fraction(n + 1)
    for k, b in enumerate(BERNOULLI, 1):
        tail = tail + _power(r, 2 * k - 1) * float(b * rising / math.factorial(2 * k))
        rising *= (n + 2 * k) * (n + 2 * k + 1)
    result = (total + _power(r, n + 1) * tail) * (sign * math.factorial(n))
    sine, cosine = sine_and_cosine(x)
    derivative = polynomial(_derivative_of_cotangent(n), cosine / sine) * math.pi ** (n + 1)
    reflected = (-1.0) ** n * result - derivative
    # At infinities and poles as eager has it: what rounding leaves of sin(pi*x), from n = 2 on zeta's value.
    result = x.where("eq", INFINITY, 0.0 if n == 1 else NAN, result)
    rest = (x * math.pi).math("sin")
    pole = math.pi**2 / (rest * rest) if n == 1 else x.of(sign * INFINITY)
    return x.where("lt", 0.5, x.where("eq", x.math("floor"), pole, reflected), result)


def _power(x: Real, n: int) -> Real:
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def _derivative_of_cotangent(n: int) -> list[float]:
    """Coefficients, highest first, of the n-th derivative as a polynomial of the cotangent: c' = -(1 + c*c)."""
    powers = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(powers)][1:]
        powers = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope])]
    return [float(c) for c in reversed(powers)]


def zeta(x: Real, q: Real) -> Real:
    """Hurwitz's: the sum of (q + k)**-x over k >= 0. Below q = 0 for integers x only, infinite at integers q."""
    a = abs(q)
    fraction = a - a.math("floor")
    below = partial(q.where, "lt", 0.0)
    # The terms below 0 are those of fraction, fraction + 1, ..., a with the sign of (-1)**x.
    sign = 1.0 - 2.0 * (x - 2.0 * (x * 0.5).math("floor"))
    first = _zeta_above_zero(x, below(fraction, q))
    reflected = sign * (first - _zeta_above_zero(x, a + 1.0)) + _zeta_above_zero(x, 1.0 - fraction)
    value = below(x.where("eq", x.math("floor"), reflected, NAN), first)
    limit = q.where("lt", 1.0, INFINITY, q.where("eq", 1.0, 1.0, NAN))  # as eager has it
    value = x.where("eq", INFINITY, limit, value)
    pole = q.where("le", 0.0, q.where("eq", q.math("floor"), INFINITY, value), value)
    return x.where("eq", 1.0, INFINITY, x.where("lt", 1.0, NAN, pole))


def _zeta_above_zero(x: Real, q: Real) -> Real:
    """The Euler-Maclaurin sum; its remainder is relatively below 1e-12 wherever its terms count."""

    def power(base: Real) -> Real:
        return (-x * base.math("log")).math("exp")

    total = power(q)
    for k in range(1, TERMS):
        total = total + power(q + float(k))
    z = q + float(TERMS)
    r, s = 1.0 / z, x.at_most(1e15)
    tail, rising = z / (s - 1.0) + 0.5, s * r
    for k, b in enumerate(BERNOULLI, 1):
        tail = tail + rising * float(b / math.factorial(2 * k))
        rising = rising * ((s + float(2 * k - 1)) * r) * ((s + float(2 * k)) * r)
    return total + power(z) * tail


def airy_ai(x: Real) -> Real:
    """NaN at infinities, 0 on underflow."""
    near = polynomial(fit.AIRY_NEAR, (x.at_least(-4.5).at_most(3.0) + 0.75) / 3.75)
    a = abs(x).at_least(3.0)
    root = a.math("sqrt")
    phase = a * root * (2.0 / 3.0)
    r, amplitude = 1.0 / phase, 1.0 / root.math("sqrt")
    end = 0.2886751345948129
    decay = polynomial(fit.AIRY_FAR, r.at_most(end) * (2.0 / end) - 1.0) * amplitude * (-phase).math("exp")
    t = (r * r).at_most(0.0247) * (2.0 / 0.0247) - 1.0
    sin, cos = phase.math("sin") * SQRT_HALF, phase.math("cos") * SQRT_HALF
    waves = polynomial(fit.AIRY_COSINE, t) * (cos + sin) + polynomial(fit.AIRY_SINE, t) * r * (sin - cos)
    result = x.where("gt", 3.0, decay, x.where("lt", -4.5, waves * amplitude, near))
    return abs(x).where("eq", INFINITY, NAN, x.where("gt", 103.892, 0.0, result))


_I = [special(partial(bessel_i, order)) for order in (0, 1)]
_LOG_GAMMA, _DIGAMMA = special(lgamma), special(digamma)


def _polygamma(b: Builder, n: int, x: Tensor) -> Tensor:
    return _DIGAMMA(b, x) if n == 0 else special(partial(polygamma, n))(b, x)


RULES: dict[str, Rule] = {
    "aten.i0.default": _I[0],
    "aten.special_modified_bessel_i0.default": _I[0],
    "aten.special_i1.default": _I[1],
    "aten.special_modified_bessel_i1.default": _I[1],
    "aten.special_i0e.default": special(partial(scaled_i, 0)),
    "aten.special_i1e.default": special(partial(scaled_i, 1)),
    **{f"aten.special_modified_bessel_k{n}.default": special(partial(bessel_k, n, False)) for n in (0, 1)},
    **{f"aten.special_scaled_modified_bessel_k{n}.default": special(partial(bessel_k, n, True)) for n in (0, 1)},
    **{f"aten.special_bessel_j{n}.default": special(partial(bessel_j, n)) for n in (0, 1)},
    **{f"aten.special_bessel_y{n}.default": special(partial(bessel_y, n)) for n in (0, 1)},
    "aten.special_spherical_bessel_j0.default": special(spherical_j0),
    "aten.special_erfcx.default": special(erfcx),
    "aten.erfinv.default": special(
        partial(erfinv, _times_inverse_erf), narrow=partial(erfinv, _times_inverse_erf_of_float32)
    ),
    "aten.special_ndtri.default": special(ndtri),
    "aten.lgamma.default": _LOG_GAMMA,
    "aten.digamma.default": _DIGAMMA,
    "aten.polygamma.default": _polygamma,
    **{f"aten.special_zeta.{form}": special(zeta, 2) for form in ("default", "self_scalar", "other_scalar")},
    "aten.special_airy_ai.default": special(airy_ai),
}
