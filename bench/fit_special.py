"""Polynomials for the rules of special functions: prints passes/lowering/aten/special_coefficients.py.

Each is a Chebyshev fit in 40 digits over t in [-1, 1], by powers of t, highest first; special.py says how t comes from
the argument. Their error is about 1e-15 of the largest value in the interval.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from mpmath import mp, mpf

mp.dps = 40
Real = Callable[[mpf], mpf]


def hankel(order: int, part: int, t: mpf) -> mpf:
    """Amplitudes of the Bessel functions beyond 8: t = 2*(8/x)**2 - 1, part 0 of the cosine, 1 of the sine (by x/8)."""
    x = 8 / mp.sqrt((t + 1) / 2)
    phase = x - (2 * order + 1) * mp.pi / 4
    j, y = mp.besselj(order, x), mp.bessely(order, x)
    scale = mp.sqrt(mp.pi * x / 2)
    if part == 0:
        return scale * (j * mp.cos(phase) + y * mp.sin(phase))
    return scale * (y * mp.cos(phase) - j * mp.sin(phase)) * x / 8


def near_zero(function: Real, t: mpf) -> mpf:
    """An even entire function of x, over x in [0, 8] by t = x*x/32 - 1; its limit is reached from a tiny x."""
    return function(mp.sqrt(32 * (t + 1)) + mpf("1e-18"))


def inverse_erf(w: mpf) -> mpf:
    """erfinv(x)/x where w = -log(1 - x*x), by Newton's method on log(erfc), for x however near to 1."""
    q = mp.exp(-w)
    tail = q / (1 + mp.sqrt(1 - q))  # 1 - x
    y = mp.sqrt(max(w - mp.log(mp.pi * max(w, 1)) / 2, mpf("0.01")))
    with mp.workdps(60):
        for _ in range(60):
            step = (mp.log(mp.erfc(y)) - mp.log(tail)) * mp.erfc(y) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
            y += step
            if abs(step) < mpf("1e-38"):
                break
    return y / (1 - tail)


def airy_decay(r: mpf) -> mpf:
    """Ai(x) * x**(1/4) * exp(zeta), by r = 1/zeta where zeta = 2/3 * x**(3/2)."""
    x = (1.5 / r) ** (mpf(2) / 3)
    return mp.airyai(x) * mp.exp(1 / r) * mp.sqrt(mp.sqrt(x))


def airy_waves(r: mpf) -> tuple[mpf, mpf]:
    """Amplitudes of the cosine and (by r) of the sine of zeta - pi/4 in Ai(-x) * x**(1/4)."""
    x, phase = (1.5 / r) ** (mpf(2) / 3), 1 / r - mp.pi / 4
    a, b, scale = mp.airyai(-x), mp.airybi(-x), mp.sqrt(mp.sqrt(x))
    return scale * (a * mp.cos(phase) - b * mp.sin(phase)), scale * (a * mp.sin(phase) + b * mp.cos(phase)) / r


def over(low: str, high: str, function: Real) -> Real:
    """``function`` of what runs from low to high as t does from -1 to 1."""
    a, b = mpf(low), mpf(high)
    return lambda t: function((a + b) / 2 + (b - a) / 2 * t)


FITS: dict[str, tuple[Real, int]] = {
    "I0_NEAR": (over("0", "8", lambda x: mp.exp(-x) * mp.besseli(0, x)), 30),
    "I0_FAR": (
        over(
            "0",
            "0.125",
            lambda r: (
                mp.sqrt(1 / (r + mpf("1e-30")))
                * mp.exp(-1 / (r + mpf("1e-30")))
                * mp.besseli(0, 1 / (r + mpf("1e-30")))
                if r > 1e-4
                else _series(0, r)
            ),
        ),
        24,
    ),
    "I1_NEAR": (over("0", "8", lambda x: mp.exp(-x) * mp.besseli(1, x) / x if x else mpf("0.5")), 30),
    "I1_FAR": (
        over(
            "0",
            "0.125",
            lambda r: mp.sqrt(1 / r) * mp.exp(-1 / r) * mp.besseli(1, 1 / r) if r > 1e-4 else _series(1, r),
        ),
        24,
    ),
    "K0_NEAR": (
        lambda t: (lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x))(mp.sqrt(2 * (t + 1)) + mpf("1e-18")),
        12,
    ),
    "K1_NEAR": (
        lambda t: (lambda x: (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x)) * x)(
            mp.sqrt(2 * (t + 1)) + mpf("1e-18")
        ),
        12,
    ),
    "K0_FAR": (
        over(
            "0",
            "0.5",
            lambda r: (
                mp.besselk(0, 1 / r) * mp.exp(1 / r) / mp.sqrt(r)
                if r > 1e-4
                else mp.sqrt(mp.pi / 2) * (1 - r / 8 + 9 * r * r / 128)
            ),
        ),
        30,
    ),
    "K1_FAR": (
        over(
            "0",
            "0.5",
            lambda r: (
                mp.besselk(1, 1 / r) * mp.exp(1 / r) / mp.sqrt(r)
                if r > 1e-4
                else mp.sqrt(mp.pi / 2) * (1 + 3 * r / 8 - 15 * r * r / 128)
            ),
        ),
        30,
    ),
    "J0_NEAR": (lambda t: near_zero(lambda x: mp.besselj(0, x), t), 18),
    "J1_NEAR": (lambda t: near_zero(lambda x: mp.besselj(1, x) / x, t), 18),
    "Y0_NEAR": (lambda t: near_zero(lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x), t), 18),
    "Y1_NEAR": (
        lambda t: near_zero(lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x, t),
        18,
    ),
    **{
        f"{name}_{order}": ((lambda t, order=order, part=part: hankel(order, part, max(t, mpf("-0.9999995")))), 14)
        for order in (0, 1)
        for part, name in ((0, "COSINE"), (1, "SINE"))
    },
    # of erfcx(x)*(x + 2)/2 over x >= 0, by y = 2/(x + 2)
    "ERFCX_OVER": (
        over(
            "0",
            "1",
            lambda y: (
                (
                    lambda x: (
                        mp.exp(x * x) * mp.erfc(x) / y
                        if x < 60
                        else (1 - 1 / (2 * x * x) + 3 / (4 * x**4) - 15 / (8 * x**6)) / (x * mp.sqrt(mp.pi)) / y
                    )
                )(2 / y - 2)
                if y > 1e-12
                else mpf(1) / (2 * mp.sqrt(mp.pi)) * (1 + y)
            ),
        ),
        34,
    ),
    "ERFINV_NEAR": (over("0", "6", lambda w: inverse_erf(w) if w > 1e-12 else mp.sqrt(mp.pi) / 2), 26),
    # by s = sqrt(w), of erfinv(x)/x/s
    "ERFINV_MIDDLE": (over("2.4", "6", lambda s: inverse_erf(s * s) / s), 26),
    # less the power of 2 below most of them, by s of erfinv(x)/x itself
    "ERFINV_NEAR_F32": (over("0", "6", lambda w: (inverse_erf(w) if w > 1e-12 else mp.sqrt(mp.pi) / 2) - 1), 12),
    "ERFINV_MIDDLE_F32": (over("2.4", "4", lambda s: inverse_erf(s * s) - 2), 10),
    "ERFINV_FAR": (over("6", "27.5", lambda s: inverse_erf(s * s) / s), 30),
    # of log(gamma(x)) over its zeros, for x in [0.5, 3]; over the one at 2 for x in [3, 8]
    "LGAMMA_NEAR": (over("0.5", "3", lambda x: mp.loggamma(x) / ((x - 1) * (x - 2))), 40),
    "LGAMMA_MIDDLE": (over("3", "8", lambda x: mp.loggamma(x) / (x - 2)), 24),
    # of Ai over [-4.5, 3]; beyond by r = 1/zeta = 1.5/x**1.5, on the negative side by r*r
    "AIRY_NEAR": (over("-4.5", "3", mp.airyai), 38),
    "AIRY_FAR": (over("0", "0.2886751345948129", lambda r: airy_decay(max(r, mpf("1e-8")))), 22),
    "AIRY_COSINE": (over("0", "0.0247", lambda s: airy_waves(mp.sqrt(max(s, mpf("1e-10"))))[0]), 16),
    "AIRY_SINE": (over("0", "0.0247", lambda s: airy_waves(mp.sqrt(max(s, mpf("1e-10"))))[1]), 16),
}


def _series(order: int, r: mpf) -> mpf:
    """exp(-x)*I(x)*sqrt(x) for a large x = 1/r."""
    m, term, total = 4 * order * order, mpf(1), mpf(1)
    for k in range(1, 6):
        term *= -(m - (2 * k - 1) ** 2) * r / (8 * k)
        total += term
    return total / mp.sqrt(2 * mp.pi)


def main() -> None:
    wanted = sys.argv[1:] or list(FITS)
    print('"""Polynomials over t in [-1, 1], highest power first. Made by `bench/fit_special.py`."""')
    print("\nfrom __future__ import annotations\n")
    for name in wanted:
        function, count = FITS[name]
        coefficients, error = mp.chebyfit(function, [-1, 1], count, error=True)
        print(f"{name} = (  # largest error {float(error):.1e}")
        line = "   "
        for value in coefficients:
            text = f" {float(value)!r},"
            if len(line) + len(text) > 119:
                print(line)
                line = "   "
            line += text
        print(line + "\n)", flush=True)


if __name__ == "__main__":
    main()
