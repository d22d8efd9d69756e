"""Math functions for which CPUs have no instruction, as arithmetic on scalars or vectors.

Argument reductions after Cody and Waite (Software Manual for the Elementary Functions, 1980), reconstruction in the
manner of Cephes (Moshier) and SLEEF (Shibata and Petrogalli, 2020), with FMA. Rare f32 functions are computed in f64
(`functions_f64`); functions without an expansion call libm lane by lane. test/codegen/test_vector_math.py asserts the
error bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from symshape.analysis.loops import Instr
from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.vector_math import f64_results as exact
from symshape.codegen.cpu.vector_math import functions_f64 as wide
from symshape.codegen.cpu.vector_math.floats import Floats
from symshape.codegen.cpu.vector_math.libm import call_libm
from symshape.machine import coefficients as fit
from symshape.machine import float_functions as functions

_INF = float("inf")
_LOG10_2_HIGH, _LOG10_2_LOW = 0.30103000998497009, -1.4320989e-08


def _exp2(m: Floats, x: str) -> str:
    x = functions.clamp(m, x, -151.0, 129.0)
    n = m.op("math.roundeven", x)
    return m.scale(m.polynomial(fit.EXP2, m.sub(x, n)), n)


def _join_log2(m: functions.Floats, e: str, f: str) -> str:
    high, low = 1.44269502162933349609375, 1.925963033500e-08
    return m.add(e, m.fma(f, high, m.fma(functions.log_rest(m, f), high, m.mul(f, low))))


def _join_log10(m: functions.Floats, e: str, f: str) -> str:
    high, low = 0.4342944920063018798828125, -1.0103050118e-08
    y = m.fma(f, high, m.fma(functions.log_rest(m, f), high, m.mul(f, low)))
    return m.fma(e, _LOG10_2_HIGH, m.fma(e, _LOG10_2_LOW, y))


def _sin_cos(m: Floats, x: str) -> tuple[str, str, str]:
    """The quadrant (an integer), sine and cosine of the rest; reduced in f64, good up to |x| = 2**29."""
    d = m.of("f64")
    n, rest = wide.reduce_quadrant(d, m.widen(x))
    quadrant = d.cast("fptosi", n, d.type_, m.integers)
    r = m.narrow(rest)
    square = m.mul(r, r)
    sine = m.fma(m.mul(m.polynomial(fit.SIN, square), square), r, r)
    return quadrant, sine, m.fma(m.polynomial(fit.COS, square), square, 1.0)


def _trigonometric(shift: int, function: str, m: Floats, x: str) -> str:
    """sin (shift 0) or cos (shift 1): cos(x) = sin(x + pi/2)."""
    quadrant, sine, cosine = _sin_cos(m, x)
    if shift:
        quadrant = m.int_op("addi", quadrant, shift)
    odd = m.int_compare("ne", m.int_op("andi", quadrant, 1), 0)
    sign = m.int_op("shli", m.int_op("shrui", quadrant, 1), 31)
    y = m.from_bits(m.int_op("xori", m.bits(m.select(odd, cosine, sine)), sign))
    if function == "sin":
        y = _keep_zero(m, x, y)
    return _unless_huge(m, function, x, y)


def _unless_huge(m: Floats, function: str, x: str, y: str) -> str:
    """y, or libm's result for all lanes if any argument is too large for the reduction."""
    huge = m.compare("oge", m.abs(x), 2.0**29)
    return m.if_any(huge, lambda: call_libm(m.state, function, [x], m.element, m.uniform), y)


def _tan(m: Floats, x: str) -> str:
    return _unless_huge(m, "tan", x, _keep_zero(m, x, m.narrow(wide.tan(m.of("f64"), m.widen(x)))))


def _keep_zero(m: Floats, x: str, y: str) -> str:
    """f(-0) = -0."""
    return m.select(m.compare("oeq", x, 0.0), x, y)


def _fmod(m: Floats, x: str, y: str) -> str:
    """|x| - trunc(|x|/|y|)*|y| in f64: exact while the quotient is, which may be one too large."""
    d, is_f64 = m.of("f64"), m.element == "f64"
    a, b = (m.abs(one) if is_f64 else m.widen(m.abs(one)) for one in (x, y))
    quotient = d.op("math.trunc", d.div(a, b))
    rest = d.fma(d.sub(-0.0, quotient), b, a)
    rest = d.select(d.compare("olt", rest, 0.0), d.add(rest, b), rest)
    rest = d.select(d.both("andi", d.compare("oeq", b, _INF), d.compare("olt", a, _INF)), a, rest)
    result = m.op("math.copysign", rest if is_f64 else m.narrow(rest), x)
    numbers = d.both("andi", d.compare("ogt", b, 0.0), d.compare("olt", a, _INF))
    large = d.both("andi", numbers, d.compare("ogt", quotient, 2.0**51 if is_f64 else 2.0**29))
    return m.if_any(large, lambda: call_libm(m.state, "fmod", [x, y], m.element, m.uniform), result)


def _pow_f64(m: Floats, x: str, y: str) -> str:
    """Its products of twice the digits are some 30 calls for each number where there is no instruction for them."""
    return exact.pow(m, x, y) if m.state.target.fma else call_libm(m.state, "pow", [x, y], m.element, m.uniform)


def _rsqrt(m: Floats, x: str) -> str:
    return m.div(1.0, m.op("math.sqrt", x))


def _widened(expansion: Callable[..., str], m: Floats, *operands: str) -> str:
    """An f32 function through its f64 expansion."""
    return m.narrow(expansion(m.of("f64"), *map(m.widen, operands)))


Expansion = Callable[..., str]  # (floats, operands...) -> result
_ANY: dict[str, Expansion] = {"math.rsqrt": _rsqrt}
_F32: dict[str, Expansion] = {
    "math.exp": functions.exp,
    "math.exp2": _exp2,
    "math.expm1": functions.expm1,
    "math.tanh": functions.tanh,
    "math.log": functions.log,
    "math.log2": partial(functions.log_with, _join_log2),
    "math.log10": partial(functions.log_with, _join_log10),
    "math.log1p": functions.log1p,
    "math.erf": functions.erf,
    "math.sin": partial(_trigonometric, 0, "sin"),
    "math.cos": partial(_trigonometric, 1, "cos"),
    "math.tan": _tan,
    "arith.remf": _fmod,
    **{f"math.{name}": partial(_widened, expansion) for name, expansion in wide.EXPANSIONS.items()},
}
_F64: dict[str, Expansion] = {
    "math.sin": lambda m, x: _unless_huge(m, "sin", x, _keep_zero(m, x, exact.trigonometric(m, x, 0.0))),
    "math.cos": lambda m, x: _unless_huge(m, "cos", x, exact.trigonometric(m, x, 1.0)),
    "math.tan": lambda m, x: _unless_huge(m, "tan", x, _keep_zero(m, x, exact.tan(m, x))),
    "math.expm1": exact.expm1,
    "math.exp2": exact.exp2,
    "math.sinh": exact.sinh,
    "math.log1p": exact.log1p,
    "math.atanh": exact.atanh,
    "math.atan": exact.atan,
    "math.atan2": exact.atan2,
    "math.asin": exact.asin,
    "math.acos": exact.acos,
    "math.cosh": exact.cosh,
    "math.log2": exact.log2,
    "math.log10": exact.log10,
    "math.powf": _pow_f64,
    "arith.remf": _fmod,
    "math.exp": wide.exp,
    "math.log": wide.log,
    "math.tanh": wide.tanh,
    "math.erf": wide.erf,
}
_LIBM = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 expm1 "
    "log log10 log1p log2 powf sin sinh tan tanh"
).split()
_TABLES = {"f32": {**_ANY, **_F32}, "f64": {**_ANY, **_F64}}


def _expand(name: str, state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    expansion = _TABLES[element].get(name)
    if expansion is not None:
        return expansion(Floats(state, element, uniform), *names)
    return call_libm(state, name.removeprefix("math."), names, element, uniform)


OPERATIONS = {name: partial(_expand, name) for name in [*_ANY, "arith.remf", *(f"math.{f}" for f in _LIBM)]}
