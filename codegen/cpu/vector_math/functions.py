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
from symshape.codegen.cpu.vector_math import coefficients as fit
from symshape.codegen.cpu.vector_math import f64_results as exact
from symshape.codegen.cpu.vector_math import functions_f64 as wide
from symshape.codegen.cpu.vector_math.floats import Floats
from symshape.codegen.cpu.vector_math.libm import call_libm

_INF, _NAN = float("inf"), float("nan")
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693147182464599609375, -1.904654299957767e-09  # exact products with FMA
_LOG10_2_HIGH, _LOG10_2_LOW = 0.30103000998497009, -1.4320989e-08
_SMALLEST_NORMAL = 2.0**-126


def _clamp(m: Floats, x: str, low: float, high: float) -> str:
    """x clamped to [low, high]; NaN stays NaN."""
    return m.op("arith.maximumf", m.op("arith.minimumf", x, high), low)


def _reduce_exp(m: Floats, x: str) -> tuple[str, str]:
    """n, r with x = n*ln 2 + r, |r| <= ln(2)/2."""
    n = m.op("math.roundeven", m.mul(x, _LOG2_E))
    return n, m.fma(n, -_LN2_LOW, m.fma(n, -_LN2_HIGH, x))


def _exp(m: Floats, x: str) -> str:
    # What becomes 0 (a masked score) is not computed: an instruction whose result is subnormal takes 150 cycles.
    none = m.compare("olt", x, -103.9722)  # half of the smallest subnormal
    n, r = _reduce_exp(m, m.select(none, 0.0, m.op("arith.minimumf", x, 89.0)))
    return m.select(none, 0.0, m.scale(m.polynomial(fit.EXP, r), n))


def _exp2(m: Floats, x: str) -> str:
    x = _clamp(m, x, -151.0, 129.0)
    n = m.op("math.roundeven", x)
    return m.scale(m.polynomial(fit.EXP2, m.sub(x, n)), n)


def _expm1_parts(m: Floats, x: str) -> tuple[str, str]:
    """n, p with exp(x) - 1 = 2**n * p + (2**n - 1)."""
    n, r = _reduce_exp(m, x)
    return n, m.fma(m.polynomial(fit.EXPM1, r), m.mul(r, r), r)


def _expm1(m: Floats, x: str) -> str:
    n, p = _expm1_parts(m, _clamp(m, x, -20.0, 89.0))
    half = m.exponent(m.sub(n, 1.0))  # 2**n itself may overflow
    y = m.fma(half, p, m.sub(half, 0.5))
    return m.op("math.copysign", m.add(y, y), x)


def _tanh(m: Floats, x: str) -> str:
    """e/(e + 2) with e = expm1(2*|x|): one formula for all x. The rounding error of e + 2 is corrected in first order
    (1/(e + 2) is (1 - y)/2), which keeps small results below 2 ulp."""
    n, p = _expm1_parts(m, m.op("arith.minimumf", m.mul(m.abs(x), 2.0), 19.0))
    power = m.exponent(n)
    e = m.fma(power, p, m.sub(power, 1.0))
    sum_ = m.add(e, 2.0)
    y = m.div(e, sum_)
    lost = m.mul(y, m.sub(e, m.sub(sum_, 2.0)))
    y = m.op("arith.minimumf", m.fma(lost, m.fma(y, 0.5, -0.5), y), 1.0)
    return m.op("math.copysign", y, x)


def _split_log(m: Floats, x: str) -> tuple[str, str]:
    """e (an integer) and the bits of z with x = 2**e * z, z in [sqrt(1/2), sqrt(2)), for positive normal x."""
    bits = m.bits(x)
    e = m.int_op("shrsi", m.int_op("subi", bits, 0x3F3504F3), 23)
    return e, m.int_op("subi", bits, m.int_op("shli", e, 23))


def _log_rest(m: Floats, f: str) -> str:
    """log(1 + f) - f."""
    square = m.mul(f, f)
    return m.fma(square, -0.5, m.mul(m.mul(square, f), m.polynomial(fit.LOG, f)))


def _log_special(m: Floats, x: str, y: str) -> str:
    """The logarithm's values at 0, inf, negative numbers and NaN."""
    y = m.select(m.compare("oeq", x, _INF), _INF, y)
    y = m.select(m.compare("oeq", x, 0.0), -_INF, y)
    return m.select(m.compare("ult", x, 0.0), _NAN, y)


def _log_with(join: Callable[[Floats, str, str], str], m: Floats, x: str) -> str:
    """A logarithm: join(m, e, f) of x = 2**e * (1 + f)."""
    tiny = m.compare("olt", x, _SMALLEST_NORMAL)
    e, bits = _split_log(m, m.select(tiny, m.mul(x, 2.0**23), x))
    exponent = m.add(m.to_float(e), m.select(tiny, -23.0, 0.0))
    return _log_special(m, x, join(m, exponent, m.sub(m.from_bits(bits), 1.0)))


def _join_log(m: Floats, e: str, f: str) -> str:
    return m.fma(e, _LN2_HIGH, m.add(f, m.fma(e, _LN2_LOW, _log_rest(m, f))))


def _join_log2(m: Floats, e: str, f: str) -> str:
    high, low = 1.44269502162933349609375, 1.925963033500e-08
    return m.add(e, m.fma(f, high, m.fma(_log_rest(m, f), high, m.mul(f, low))))


def _join_log10(m: Floats, e: str, f: str) -> str:
    high, low = 0.4342944920063018798828125, -1.0103050118e-08
    y = m.fma(f, high, m.fma(_log_rest(m, f), high, m.mul(f, low)))
    return m.fma(e, _LOG10_2_HIGH, m.fma(e, _LOG10_2_LOW, y))


def _log1p(m: Floats, x: str) -> str:
    """log(u) with u = 1 + x rounded; what the rounding lost is added to the reduced argument (Kahan's idea)."""
    u = m.add(x, 1.0)
    part = m.sub(u, 1.0)
    lost = m.add(m.sub(1.0, m.sub(u, part)), m.sub(x, part))
    e, bits = _split_log(m, u)
    shift = m.power_of_two(m.int_op("maxsi", m.int_op("subi", 0, e), -126))
    f = m.fma(lost, shift, m.sub(m.from_bits(bits), 1.0))
    return m.op("math.copysign", _log_special(m, u, _join_log(m, m.to_float(e), f)), x)


def _erf(m: Floats, x: str) -> str:
    """x*P(x*x) up to 1, then 1 - exp(-Q(|x|))."""
    a, square = m.abs(x), m.mul(x, x)
    near = m.fma(m.polynomial(fit.ERF, square), x, x)
    n, r = _reduce_exp(m, m.sub(-0.0, m.polynomial(fit.ERF_TAIL, m.op("arith.minimumf", a, 4.0))))
    far = m.sub(1.0, m.scale(m.polynomial(fit.EXP, r), n))
    return m.select(m.compare("olt", a, 1.0), near, m.op("math.copysign", far, x))


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


def _rsqrt(m: Floats, x: str) -> str:
    return m.div(1.0, m.op("math.sqrt", x))


def _widened(expansion: Callable[..., str], m: Floats, *operands: str) -> str:
    """An f32 function through its f64 expansion."""
    return m.narrow(expansion(m.of("f64"), *map(m.widen, operands)))


Expansion = Callable[..., str]  # (floats, operands...) -> result
_ANY: dict[str, Expansion] = {"math.rsqrt": _rsqrt}
_F32: dict[str, Expansion] = {
    "math.exp": _exp,
    "math.exp2": _exp2,
    "math.expm1": _expm1,
    "math.tanh": _tanh,
    "math.log": partial(_log_with, _join_log),
    "math.log2": partial(_log_with, _join_log2),
    "math.log10": partial(_log_with, _join_log10),
    "math.log1p": _log1p,
    "math.erf": _erf,
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
_C_NAMES = {"powf": "pow", "arith.remf": "fmod"}
_TABLES = {"f32": {**_ANY, **_F32}, "f64": {**_ANY, **_F64}}


def _expand(name: str, state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    expansion = _TABLES[element].get(name)
    if expansion is not None:
        return expansion(Floats(state, element, uniform), *names)
    function = name.removeprefix("math.")
    return call_libm(state, _C_NAMES.get(function, function), names, element, uniform)


OPERATIONS = {name: partial(_expand, name) for name in [*_ANY, "arith.remf", *(f"math.{f}" for f in _LIBM)]}
