"""Rules of orthogonal polynomials: closed forms, else recurrences of as many steps as the degree may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.float64_numbers import Real, special
from symshape.passes.lowering.aten.rule_combinators import Rule

INFINITY, NAN = math.inf, math.nan
DEGREES = 128  # of Hermite polynomials in float32: eager mode's limit, above which all are NaN
_STEPS = 32  # of a degree that is a number; each is code of the kernel

Step = Callable[[Real, int, Real, Real], Real]  # (x, m, P(m), P(m - 1)) -> P(m + 1)


def chebyshev(kind: str, shifted: bool, x: Real, n: Real) -> Real:
    """Chebyshev polynomials of the four kinds, by their closed forms: circular functions inside [-1, 1], hyperbolic
    ones outside. The degree is truncated; below 0 there is no polynomial, and eager returns 0."""
    x = 2.0 * x - 1.0 if shifted else x
    n = n.math("trunc")
    a = abs(x)
    odd = n - 2.0 * (n * 0.5).math("floor")
    angle, area = x.at_most(1.0).at_least(-1.0).math("acos"), a.at_least(1.0).math("acosh")
    sign = x.where("lt", 0.0, 1.0 - 2.0 * odd, 1.0)
    if kind == "t":
        inside, outside = (n * angle).math("cos"), sign * (n * area).math("cosh")
        result = a.where("le", 1.0, inside, outside)
    elif kind == "u":
        inside = ((n + 1.0) * angle).math("sin") / angle.math("sin")
        outside = sign * ((n + 1.0) * area).math("sinh") / area.math("sinh")
        result = a.where("eq", 1.0, sign * (n + 1.0), a.where("lt", 1.0, inside, outside))
    else:
        result = _of_half_angles(kind == "v", x, n, angle, area, sign)
    result = a.where("eq", INFINITY, n.where("eq", 1.0, x, NAN), result)  # as eager's recurrence
    return n.where("lt", 0.0, 0.0, n.where("eq", 0.0, 1.0, result))  # of NaN as well


def _of_half_angles(third: bool, x: Real, n: Real, angle: Real, area: Real, sign: Real) -> Real:
    """The third kind cos((n + 1/2)*a)/cos(a/2), the fourth sin((n + 1/2)*a)/sin(a/2); at -x each is the other one."""
    m = n + 0.5
    name = "cos" if third else "sin"
    inside = (m * angle).math(name) / (angle * 0.5).math(name)
    even = (m * area).math("cosh") / (area * 0.5).math("cosh")
    odd = (m * area).math("sinh") / (area * 0.5).math("sinh")
    outside = x.where("gt", 0.0, even if third else odd, sign * (odd if third else even))
    steep, flat = 2.0 * n + 1.0, sign
    ends = x.where("gt", 0.0, flat if third else steep, sign * steep if third else flat)
    return abs(x).where("eq", 1.0, ends, abs(x).where("lt", 1.0, inside, outside))


def hermite(scale: float, x: Real, n: Real) -> Real:
    """H(m + 1) = s*x*H(m) - s*m*H(m - 1) from 1 and s*x: s is 2 for physicists' polynomials, 1 for probabilists'. For a
    negative degree, or one that is no number, 0, as in eager mode."""
    n = n.math("trunc")
    before, last = x.of(1.0), x * scale
    slope = last
    result = n.where("eq", 1.0, last, NAN)
    for m in range(1, DEGREES):
        before, last = last, slope.math("fma", last, before * (-scale * m))
        result = n.where("eq", float(m + 1), last, result)
    is_degree = partial(n.where, "ge", 0.0)
    return is_degree(n.where("eq", 0.0, 1.0, n.where("eq", INFINITY, 0.0, result)), 0.0)


def _hermite(scale: float, b: Builder, x: Any, n: Any) -> Tensor:
    if b.results[0].dtype == "f64":
        raise Unsupported("all of 512 steps for each element, where eager mode takes as many as the degree")
    made: Tensor = special(partial(hermite, scale), 2)(b, x, n)
    return made


def of_known_degree(first: Callable[[Real], Real], step: Step) -> Rule:
    """The rule where the degree is a number: the recurrence from 1 and ``first(x)`` on. The degree is truncated; below
    0 there is no polynomial, and eager mode returns 0."""

    def code(x: Real, degree: float) -> Real:
        n = int(degree)
        before, last = x.of(1.0), first(x)
        for m in range(1, n):
            before, last = last, step(x, m, last, before)
        return last if n > 0 else x.of(1.0 if n == 0 else 0.0)

    def rule(b: Builder, x: Any, degree: Any) -> Tensor:
        if not isinstance(degree, (int, float)) or not abs(degree) <= _STEPS:
            raise Unsupported(f"a degree that is not a number of at most {_STEPS}")
        made: Tensor = special(code)(b, x, degree)
        return made

    return rule


def _scaled_step(scale: float, x: Real, m: int, last: Real, before: Real) -> Real:
    return x * scale * last - before * (scale * m)


def _legendre_step(x: Real, m: int, last: Real, before: Real) -> Real:
    return (x * (2.0 * m + 1.0) * last - before * float(m)) / (m + 1.0)


def _laguerre_step(x: Real, m: int, last: Real, before: Real) -> Real:
    return ((2.0 * m + (1.0 - x)) * last - before * float(m)) / (m + 1.0)


RULES: dict[str, Rule] = {
    **{
        f"aten.special_{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}.{form}": special(
            partial(chebyshev, kind, shifted), 2
        )
        for kind in "tuvw"
        for shifted in (False, True)
        for form in ("default", "n_scalar", "x_scalar")
    },
    **{
        f"aten.special_hermite_polynomial_{kind}.{form}": partial(_hermite, scale)
        for kind, scale in (("h", 2.0), ("he", 1.0))
        for form in ("default", "x_scalar")
    },
    "aten.special_hermite_polynomial_h.n_scalar": of_known_degree(lambda x: x * 2.0, partial(_scaled_step, 2.0)),
    "aten.special_hermite_polynomial_he.n_scalar": of_known_degree(lambda x: x, partial(_scaled_step, 1.0)),
    "aten.special_legendre_polynomial_p.n_scalar": of_known_degree(lambda x: x, _legendre_step),
    "aten.special_laguerre_polynomial_l.n_scalar": of_known_degree(lambda x: 1.0 - x, _laguerre_step),
}
