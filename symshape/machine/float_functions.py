"""f32 functions for which CPUs have no instruction, as arithmetic on vectors, for kernels and for code of the runtime.

Written in ``Floats``, which prints MLIR in the compiler (`codegen/cpu/vector_math/floats.py`), LLVM IR in the runtime
(`runtime/cpu/llvm_floats.py`). Argument reductions after Cody and Waite (Software Manual for the Elementary Functions,
1980), reconstruction in the manner of Cephes (Moshier) and SLEEF (Shibata and Petrogalli, 2020), with FMA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from symshape.machine import coefficients as fit

_INF, _NAN = float("inf"), float("nan")
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693147182464599609375, -1.904654299957767e-09  # exact products with FMA
_SMALLEST_NORMAL = 2.0**-126


class Floats(Protocol):
    """Operations on values of f32, by the names of MLIR's dialects. Values are names; Python numbers are constants.

    ``has_tables``: whether one instruction picks one of 8 numbers for each lane.
    """

    @property
    def has_tables(self) -> bool: ...
    def pick(self, table: Sequence[float], index: str) -> str:
        """For each lane, the number of the table of 8 that the lowest three bits of its integer say."""
        ...

    def op(self, name: str, *operands: str | float) -> str: ...
    def name(self, value: str | float) -> str: ...
    def compare(self, predicate: str, left: str | float, right: str | float) -> str: ...
    def select(self, condition: str, left: str | float, right: str | float) -> str: ...
    def bits(self, value: str) -> str: ...
    def from_bits(self, value: str) -> str: ...
    def to_float(self, value: str) -> str: ...
    def int_op(self, name: str, left: str | int, right: str | int) -> str: ...
    def power_of_two(self, exponent: str) -> str: ...
    def scale(self, value: str, exponent: str) -> str: ...
    def exponent(self, exponent: str) -> str: ...

    def add(self, left: str | float, right: str | float) -> str:
        return self.op("arith.addf", left, right)

    def sub(self, left: str | float, right: str | float) -> str:
        return self.op("arith.subf", left, right)

    def mul(self, left: str | float, right: str | float) -> str:
        return self.op("arith.mulf", left, right)

    def div(self, left: str | float, right: str | float) -> str:
        return self.op("arith.divf", left, right)

    def fma(self, left: str | float, right: str | float, addend: str | float) -> str:
        return self.op("math.fma", left, right, addend)

    def abs(self, value: str) -> str:
        return self.op("math.absf", value)

    def polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """Horner's scheme; the highest power first."""
        result: str | float = coefficients[0]
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, coefficient)
        return self.name(result)


def clamp(m: Floats, x: str, low: float, high: float) -> str:
    """x clamped to [low, high]; NaN stays NaN."""
    return m.op("arith.maximumf", m.op("arith.minimumf", x, high), low)


def _reduce_exp(m: Floats, x: str) -> tuple[str, str]:
    """n, r with x = n*ln 2 + r, |r| <= ln(2)/2."""
    n = m.op("math.roundeven", m.mul(x, _LOG2_E))
    return n, m.fma(n, -_LN2_LOW, m.fma(n, -_LN2_HIGH, x))


def exp(m: Floats, x: str) -> str:
    # What becomes 0 (a masked score) is not computed: an instruction whose result is subnormal takes 150 cycles.
    none = m.compare("olt", x, -103.9722)  # half of the smallest subnormal
    n, r = _reduce_exp(m, m.select(none, 0.0, m.op("arith.minimumf", x, 89.0)))
    return m.select(none, 0.0, m.scale(m.polynomial(fit.EXP, r), n))


def _expm1_parts(m: Floats, x: str) -> tuple[str, str]:
    """n, p with exp(x) - 1 = 2**n * p + (2**n - 1)."""
    n, r = _reduce_exp(m, x)
    return n, m.fma(m.polynomial(fit.EXPM1, r), m.mul(r, r), r)


def expm1(m: Floats, x: str) -> str:
    n, p = _expm1_parts(m, clamp(m, x, -20.0, 89.0))
    half = m.exponent(m.sub(n, 1.0))  # 2**n itself may overflow
    y = m.fma(half, p, m.sub(half, 0.5))
    return m.op("math.copysign", m.add(y, y), x)


def tanh(m: Floats, x: str) -> str:
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


def log_rest(m: Floats, f: str) -> str:
    """log(1 + f) - f."""
    square = m.mul(f, f)
    return m.fma(square, -0.5, m.mul(m.mul(square, f), m.polynomial(fit.LOG, f)))


def _log_special(m: Floats, x: str, y: str) -> str:
    """The logarithm's values at 0, inf, negative numbers and NaN."""
    y = m.select(m.compare("oeq", x, _INF), _INF, y)
    y = m.select(m.compare("oeq", x, 0.0), -_INF, y)
    return m.select(m.compare("ult", x, 0.0), _NAN, y)


def log_with(join: Callable[[Floats, str, str], str], m: Floats, x: str) -> str:
    """A logarithm: join(m, e, f) of x = 2**e * (1 + f)."""
    tiny = m.compare("olt", x, _SMALLEST_NORMAL)
    e, bits = _split_log(m, m.select(tiny, m.mul(x, 2.0**23), x))
    exponent = m.add(m.to_float(e), m.select(tiny, -23.0, 0.0))
    return _log_special(m, x, join(m, exponent, m.sub(m.from_bits(bits), 1.0)))


def join_log(m: Floats, e: str, f: str) -> str:
    return m.fma(e, _LN2_HIGH, m.add(f, m.fma(e, _LN2_LOW, log_rest(m, f))))


def log1p(m: Floats, x: str) -> str:
    """log(u) with u = 1 + x rounded; what the rounding lost is added to the reduced argument (Kahan's idea)."""
    u = m.add(x, 1.0)
    part = m.sub(u, 1.0)
    lost = m.add(m.sub(1.0, m.sub(u, part)), m.sub(x, part))
    e, bits = _split_log(m, u)
    shift = m.power_of_two(m.int_op("maxsi", m.int_op("subi", 0, e), -126))
    f = m.fma(lost, shift, m.sub(m.from_bits(bits), 1.0))
    return m.op("math.copysign", _log_special(m, u, join_log(m, m.to_float(e), f)), x)


def erf(m: Floats, x: str) -> str:
    """x*P(x*x) up to 1, then 1 - exp(-Q(|x|)); with tables, one polynomial, whose coefficients depend on the lane."""
    if m.has_tables:
        return _erf_of_parts(m, x)
    a, square = m.abs(x), m.mul(x, x)
    near = m.fma(m.polynomial(fit.ERF, square), x, x)
    n, r = _reduce_exp(m, m.sub(-0.0, m.polynomial(fit.ERF_TAIL, m.op("arith.minimumf", a, 4.0))))
    far = m.sub(1.0, m.scale(m.polynomial(fit.EXP, r), n))
    return m.select(m.compare("olt", a, 1.0), near, m.op("math.copysign", far, x))


_PART, _PARTS_END = 17 / 32, 3.92  # of erf, which rounds to 1 from there on
_TO_INTEGER = 1.5 * 2.0**23  # added to a small number, it leaves the nearest integer in the lowest bits


def _erf_of_parts(m: Floats, x: str) -> str:
    """|x| = n*_PART + d, where d is exact, since n*_PART has few bits. Part 0 has no constant but d itself: what is
    added to it is small, and so is its rounding."""
    a = m.abs(x)
    a = m.select(m.compare("ogt", a, _PARTS_END), _PARTS_END, a)  # not minimumf: a comparison keeps NaN as well
    shifted = m.fma(a, 1 / _PART, _TO_INTEGER)
    n, index = m.sub(shifted, _TO_INTEGER), m.bits(shifted)
    d = m.fma(n, -_PART, a)
    y, *rest, constant = (m.pick(table, index) for table in fit.ERF_PARTS)
    for coefficient in rest:
        y = m.fma(y, d, coefficient)
    y = m.fma(y, d, m.select(m.compare("oeq", n, 0.0), d, constant))
    return m.op("math.copysign", y, x)


def log(m: Floats, x: str) -> str:
    return log_with(join_log, m, x)
