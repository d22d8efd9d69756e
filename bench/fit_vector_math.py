"""Minimax polynomials for codegen/cpu/vector_math: `python bench/fit_vector_math.py [NAME...]` prints its tables.

Remez exchange with relative weights, in 40 digits. Coefficients are rounded one after the other, lowest power first,
and the others fitted again each time, so that rounding costs almost nothing (Muller, Elementary Functions, 3rd ed.,
ch. 3).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 40
_POINTS = 1500
Real = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """f(x) ~ sum of c_i x**powers[i] on [low, high]; the error is weighted by ``weight`` (default: 1/f, relative)."""

    function: Real
    low: float
    high: float
    powers: Sequence[int]
    weight: Real | None = None
    single: bool = True  # coefficients rounded to f32, else f64


def _round(value: mpf, single: bool) -> float:
    return struct.unpack("f", struct.pack("f", float(value)))[0] if single else float(value)


def remez(fit: Fit, fixed: dict[int, float]) -> tuple[list[mpf], mpf]:
    """The free coefficients (in the order of their powers) and the largest weighted error."""
    low, high = mpf(fit.low), mpf(fit.high)
    free = [p for p in fit.powers if p not in fixed]
    weight = fit.weight or (lambda x: 1 / abs(fit.function(x)))
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / _POINTS) for i in range(_POINTS + 1)]
    known = [mp.fsum(mpf(c) * x**p for p, c in fixed.items()) for x in grid]
    target = [fit.function(x) - k for x, k in zip(grid, known, strict=True)]
    weights = [max(weight(x), mpf("1e-20")) for x in grid]
    nodes = [round(i * _POINTS / len(free)) for i in range(len(free) + 1)]
    for _ in range(30):
        rows = [[grid[n] ** p for p in free] + [(-1) ** i / weights[n]] for i, n in enumerate(nodes)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([target[n] for n in nodes]))
        coefficients, level = list(solution)[:-1], abs(solution[len(free)])
        errors = [
            w * (t - mp.fsum(c * x**p for c, p in zip(coefficients, free, strict=True)))
            for x, t, w in zip(grid, target, weights, strict=True)
        ]
        nodes, worst = _extrema(errors, len(free) + 1)
        if worst <= level * mpf("1.01"):
            break
    return coefficients, worst


def _extrema(errors: Sequence[mpf], count: int) -> tuple[list[int], mpf]:
    """The positions of ``count`` alternating extrema."""
    groups: list[list[int]] = []
    for i, error in enumerate(errors):
        if groups and (errors[groups[-1][0]] > 0) == (error > 0):
            groups[-1].append(i)
        else:
            groups.append([i])
    peaks = [max(group, key=lambda i: abs(errors[i])) for group in groups]
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    while len(peaks) < count:
        peaks = sorted({*peaks, *(min(len(errors) - 1, p + 1) for p in peaks)})[:count]
    return peaks, max(map(abs, errors))


def rounded(fit: Fit) -> tuple[list[float], mpf]:
    """All coefficients rounded, highest power first, and the largest weighted error."""
    fixed: dict[int, float] = {}
    for power in sorted(fit.powers):
        free = [p for p in fit.powers if p not in fixed]
        coefficients, _ = remez(fit, fixed)
        fixed[power] = _round(coefficients[free.index(power)], fit.single)
    last = Fit(fit.function, fit.low, fit.high, fit.powers, fit.weight, fit.single)
    weight = last.weight or (lambda x: 1 / abs(fit.function(x)))
    grid = [mpf(fit.low) + (mpf(fit.high) - fit.low) * i / _POINTS for i in range(_POINTS + 1)]
    worst = max(abs(weight(x) * (fit.function(x) - mp.fsum(mpf(c) * x**p for p, c in fixed.items()))) for x in grid)
    return [fixed[p] for p in sorted(fit.powers, reverse=True)], worst


def _series(function: Real, at_zero: float) -> Real:
    return lambda x: function(x) if abs(x) > mpf("1e-15") else mpf(at_zero)


def _of_square(function: Real, first: float) -> Real:
    """g with function(x) = x*g(x*x)."""
    return _series(lambda z: function(mp.sqrt(z)) / mp.sqrt(z), first)


_HALF_LN2 = float(mp.log(2) / 2) * 1.001
_LOG_LOW, _LOG_HIGH = float(mp.sqrt(mpf(0.5))) - 1 - 1e-6, float(mp.sqrt(mpf(2))) - 1 + 1e-6
_QUARTER_PI = float(mp.pi / 4) * 1.0001


def _erf_tail(t: mpf) -> mpf:
    return -mp.log(mp.erfc(t))


def _log_rest(f: mpf) -> mpf:
    """r with log(1 + f) = f - f*f/2 + f**3*r."""
    return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > mpf("1e-8") else mpf(1) / 3 - f / 4


def _log_weight(f: mpf) -> mpf:
    return abs(f**3 / mp.log1p(f)) if abs(f) > mpf("1e-10") else mpf("1e-18")


def _atanh_rest(z: mpf) -> mpf:
    """r with log((1 + s)/(1 - s)) = 2*s + s**3*r, z = s*s."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / s**3 if z > mpf("1e-12") else mpf(2) / 3 + z * 2 / 5


def _atanh_tail(z: mpf) -> mpf:
    """r with log((1 + s)/(1 - s)) = 2*s + s**3*(2/3 + z*r), z = s*s."""
    s = mp.sqrt(z)
    return ((2 * mp.atanh(s) - 2 * s) / s**3 - mpf(2) / 3) / z if z > mpf("1e-9") else mpf(2) / 5 + z * 2 / 7


def _erfcx(t: mpf) -> mpf:
    """exp(a*a)*erfc(a) of t = (a - 2)/(a + 2)."""
    a = 2 * (1 + t) / (1 - t)
    return mp.exp(a * a) * mp.erfc(a)


_TWO_OVER_ROOT_PI = float(2 / mp.sqrt(mp.pi))


def _least_squares(function: Real, low: mpf, high: mpf, powers: Sequence[int], weight: Real) -> list[float]:
    """Coefficients rounded to f32, highest power first, by least squares at Chebyshev's points: behind a rounded
    constant, Remez's exchange needs an interval that ends at 0."""
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / 128) for i in range(64)]
    fixed: dict[int, float] = {}
    for power in powers:
        free = [p for p in powers if p not in fixed]
        rows = mp.matrix([[weight(x) * x**p for p in free] for x in points])
        rest = [weight(x) * (function(x) - mp.fsum(mpf(c) * x**p for p, c in fixed.items())) for x in points]
        solution = mp.lu_solve(rows.T * rows, rows.T * mp.matrix(rest))
        fixed[power] = _round(solution[0], single=True)
    return [fixed[p] for p in reversed(powers)]


def erf_parts(parts: int = 8, step: float = 17 / 32, end: float = 3.92, degree: int = 6) -> list[list[float]]:
    """erf(n*step + d) for each number n of a part, as a polynomial of d from -step/2 to step/2, up to ``end``; for part
    0, (erf(d) - d) as one without a constant. By power, highest first: the coefficients of all parts."""
    found = []
    for n in range(parts):
        middle, low, high = mpf(step) * n, -mpf(step) / 2, min(mpf(step) / 2, mpf(end) - mpf(step) * n)
        if n:
            there: Real = lambda d, at=middle: mp.erf(at + d)  # noqa: E731
            here = _least_squares(there, low, high, range(degree + 1), lambda d, erf=there: 1 / erf(d))
        else:
            rest = _series(lambda d: mp.erf(d) / d - 1, _TWO_OVER_ROOT_PI - 1)
            here = [*_least_squares(rest, mpf(0), high, range(degree), lambda d: mpf(1)), 0.0]
        found.append(here)
    return [list(row) for row in zip(*found, strict=True)]


FITS: dict[str, Fit] = {
    # for f32
    "EXP": Fit(mp.exp, -_HALF_LN2, _HALF_LN2, range(7), lambda x: 1 / mp.exp(x)),
    "EXP2": Fit(lambda x: mpf(2) ** x, -0.5005, 0.5005, range(7), lambda x: 1 / mpf(2) ** x),
    "EXPM1": Fit(
        _series(lambda r: (mp.expm1(r) - r) / r**2, 0.5),
        -_HALF_LN2,
        _HALF_LN2,
        range(5),
        lambda r: abs(r * r / mp.expm1(r)) if r else mpf(0),
    ),
    "LOG": Fit(_log_rest, _LOG_LOW, _LOG_HIGH, range(9), _log_weight),
    "SIN": Fit(
        lambda z: (_of_square(mp.sin, 1)(z) - 1) / z if z > mpf("1e-12") else mpf(-1) / 6,
        0,
        _QUARTER_PI**2,
        range(3),
        lambda z: z,
    ),
    "COS": Fit(
        lambda z: (mp.cos(mp.sqrt(z)) - 1) / z if z > mpf("1e-12") else mpf(-1) / 2,
        0,
        _QUARTER_PI**2,
        range(4),
        lambda z: z,
    ),
    "ERF": Fit(lambda z: _of_square(mp.erf, _TWO_OVER_ROOT_PI)(z) - 1, 0, 1, range(7), lambda z: mpf(1)),
    "ERF_TAIL": Fit(_erf_tail, 0.98, 3.95, range(6), lambda t: mp.erfc(t) / mp.erf(t)),
    # in f64, to the last bit
    "EXP_F64": Fit(mp.exp, -_HALF_LN2, _HALF_LN2, range(13), lambda x: 1 / mp.exp(x), single=False),
    "EXPM1_F64": Fit(
        _series(lambda r: (mp.expm1(r) - r) / r**2, 0.5),
        -_HALF_LN2,
        _HALF_LN2,
        range(12),
        lambda r: abs(r * r / mp.expm1(r)) if r else mpf(0),
        single=False,
    ),
    "SIN_F64": Fit(
        lambda z: (_of_square(mp.sin, 1)(z) - 1) / z if z > mpf("1e-12") else mpf(-1) / 6,
        0,
        _QUARTER_PI**2,
        range(6),
        lambda z: z,
        single=False,
    ),
    "ATAN_F64": Fit(
        lambda z: (_of_square(mp.atan, 1)(z) - 1) / z if z > mpf("1e-12") else mpf(-1) / 3,
        0,
        0.1717,
        range(12),
        lambda z: z,
        single=False,
    ),
    "COS_F64": Fit(
        lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > mpf("1e-9") else mpf(1) / 24,
        0,
        _QUARTER_PI**2,
        range(6),
        lambda z: z**2,
        single=False,
    ),
    "LOG_F64": Fit(_atanh_rest, 0, 0.0295, range(7), lambda z: mpf(1), single=False),
    "ATANH_TAIL_F64": Fit(_atanh_tail, 0, 0.0295, range(9), lambda z: mpf(1), single=False),
    # in f64, for an f32 result
    "ATAN": Fit(
        lambda z: (_of_square(mp.atan, 1)(z) - 1) / z if z > mpf("1e-12") else mpf(-1) / 3,
        0,
        1,
        range(11),
        lambda z: z,
        single=False,
    ),
    "ERFCX": Fit(_erfcx, -1, 0.68, range(13), single=False),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        values, error = rounded(FITS[name])
        print(f"_{name} = (  # largest error 2**{float(mp.log(error, 2)):.1f}")
        for value in values:
            print(f"    {value!r},")
        print(")")
    if not sys.argv[1:]:
        print("ERF_PARTS =", erf_parts())
