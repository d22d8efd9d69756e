"""Functions that generated Triton kernels call: what ``tl.math`` lacks, extrema that keep NaN, floor division.

None needs libdevice, so that kernels run under TRITON_INTERPRET=1 as well; each is accurate to a few ulp. Import this
module only where triton may be imported: the interpreter is chosen when triton is (see runtime/triton/launch.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"
# (triton reads annotations as types of its own)

from __future__ import annotations

import os

import triton
import triton.language as tl

# In the interpreter a generic tl.reduce runs Python code for each element; max, min and sum do not.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") in ("1", "true", "on", "yes"))


# Floating point.


@triton.jit
def to_bfloat16(x):
    """x as bfloat16, rounded to nearest even. The interpreter's own cast truncates."""
    if INTERPRETED:
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
        rounded = (bits.to(tl.int64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
        halves = tl.where(x != x, 0x7FC0, rounded).to(tl.int16)
        return halves.to(tl.bfloat16, bitcast=True)
    else:
        return x.to(tl.float32).to(tl.bfloat16)


@triton.jit
def copysign(x, y):
    if x.dtype == tl.float64:
        magnitude = x.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        sign = y.to(tl.int64, bitcast=True) & -0x8000000000000000
        return (magnitude | sign).to(tl.float64, bitcast=True)
    else:
        magnitude = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        sign = y.to(tl.int32, bitcast=True) & -0x80000000
        return (magnitude | sign).to(tl.float32, bitcast=True)


@triton.jit
def trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def roundeven(x):
    """Rounds to the nearest integer, ties to even: the sum with 2**(mantissa bits) has no fraction bits."""
    magnitude = tl.abs(x)
    limit = 4503599627370496.0 if x.dtype == tl.float64 else 8388608.0
    rounded = copysign((magnitude + limit) - limit, x)
    return tl.where(magnitude < limit, rounded, x)


@triton.jit
def round_away(x):
    """Rounds to the nearest integer, ties away from zero."""
    magnitude = tl.abs(x)
    whole = tl.floor(magnitude)
    return copysign(tl.where(magnitude - whole >= 0.5, whole + 1.0, whole), x)


@triton.jit
def exp(x):
    """e**x. tl.exp rounds x*log2(e), an error that grows with x; here the result is corrected by the remainder."""
    if INTERPRETED or x.dtype == tl.float64:
        return tl.exp(x)
    else:
        y = x * 1.44269502162933349609375
        low = tl.fma(x, 1.44269502162933349609375, -y) + x * 1.92596299112661746887e-8
        e = tl.exp2(y)
        return tl.where(tl.abs(y) < 160.0, e * (low * 0.69314718055994530942) + e, e)


@triton.jit
def over(x, y, corrected: tl.constexpr):
    """x / y for few values y and many x: the product with the reciprocal, within 2 ulp. ``corrected``: corrected once
    by the remainder (Markstein, IBM Journal of Research and Development 34(1), 1990), within 1 ulp, in a third of the
    time of a division. Both operands are scaled if the reciprocal would not be a normal number; if there is no finite
    correction (zeros, infinities), none is applied. The reciprocal is the hardware's approximation, within 1 ulp; a
    correctly rounded one takes 30 instructions, per element if rows are no longer than a warp. The remainder is negated
    before it is subtracted, so that a quotient of -0 keeps its sign.
    """
    if INTERPRETED:
        return tl.div_rn(x, y)
    else:
        size = tl.abs(y)
        scale = tl.where(size < 5.421010862427522e-20, 18446744073709551616.0, 1.0)
        scale = tl.where(size > 18446744073709551616.0, 5.421010862427522e-20, scale)
        y = y * scale
        reciprocal = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, True, 1)
        x = x * scale
        quotient = x * reciprocal
        if not corrected:
            return quotient
        better = tl.fma(-tl.fma(quotient, y, -x), reciprocal, quotient)
        return tl.where(better == better, better, quotient)


@triton.jit
def over_count(x, y):
    """x / y for one element count y (0, or neither tiny nor huge): the product with its reciprocal, within 1.5 ulp.
    PyTorch's own kernels of means (ReduceMomentKernel.cu of aten/src/ATen/native/cuda) and of division by a scalar
    (BinaryDivTrueKernel.cu) do the same.
    """
    if INTERPRETED:
        return x * tl.div_rn(1.0, y)
    else:
        first = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, True, 1)
        better = tl.fma(tl.fma(-y, first, 1.0), first, first)
        return x * tl.where(better == better, better, first)


@triton.jit
def expm1(x):
    """exp(x) - 1 by Kahan's method: the error of u = exp(x) cancels in (u - 1) / log(u)."""
    u = exp(x)
    quotient = (u - 1.0) * (x / tl.log(u))
    result = tl.where((u == 1.0) | (x != x), x, tl.where(u - 1.0 == -1.0, u - 1.0, quotient))
    return tl.where(u == float("inf"), u, result)


@triton.jit
def log1p(x):
    """log(1 + x) by Kahan's method: the error of u = 1 + x cancels in log(u) / (u - 1)."""
    u = x + 1.0
    result = tl.where(u == 1.0, x, tl.log(u) * x / (u - 1.0))
    return tl.where(u == float("inf"), u, result)


@triton.jit
def log10(x):
    return tl.log(x) * 0.43429448190325182765


@triton.jit
def tanh(x):
    t = expm1(tl.abs(x) * -2.0)
    return copysign(-t / (t + 2.0), x)


@triton.jit
def sinh(x):
    magnitude = tl.abs(x)
    t = expm1(tl.minimum(magnitude, 20.0))
    half = exp(magnitude * 0.5)  # exp(x) / 2 without overflow before sinh itself overflows
    result = tl.where(magnitude > 20.0, (half * 0.5) * half, (t + t / (t + 1.0)) * 0.5)
    return copysign(tl.where(x != x, x, result), x)


@triton.jit
def cosh(x):
    magnitude = tl.abs(x)
    half = exp(magnitude * 0.5)
    e = exp(magnitude)
    return tl.where(magnitude > 20.0, (half * 0.5) * half, (e + 1.0 / e) * 0.5)


@triton.jit
def asinh(x):
    magnitude = tl.abs(x)
    square = magnitude * magnitude
    small = log1p(magnitude + square / (1.0 + tl.sqrt(1.0 + square)))
    large = tl.log(magnitude) + 0.69314718055994530942
    return copysign(tl.where(magnitude > 1e9, large, small), x)


@triton.jit
def acosh(x):
    t = x - 1.0
    small = log1p(t + tl.sqrt(t * (t + 2.0)))
    return tl.where(x > 1e9, tl.log(x) + 0.69314718055994530942, tl.where(x < 1.0, float("nan"), small)).to(x.dtype)


@triton.jit
def atanh(x):
    magnitude = tl.abs(x)
    return copysign(0.5 * log1p(2.0 * magnitude / (1.0 - magnitude)), x)


@triton.jit
def atan(x):
    """Arc tangent as in Cephes: argument reduced to |x| <= 0.66, then a rational function of x*x."""
    magnitude = tl.abs(x)
    large = magnitude > 2.41421356237309504880
    middle = (magnitude > 0.66) & (magnitude <= 2.41421356237309504880)
    ratio = tl.where(middle, (magnitude - 1.0) / (magnitude + 1.0), magnitude)
    r = tl.where(large, -1.0 / magnitude, ratio)
    z = r * r
    p = (((z * -8.750608600031904122785e-1 - 1.615753718733365076637e1) * z - 7.500855792314704667340e1) * z
         - 1.228866684490136173410e2) * z - 6.485021904942025371773e1  # fmt: skip
    q = ((((z + 2.485846490142306297962e1) * z + 1.650270098316988542046e2) * z + 4.328810604912902668951e2) * z
         + 4.853903996359136964868e2) * z + 1.945506571482613964425e2  # fmt: skip
    low = r * (z * (p / q)) + r
    offset = low * 0.0 + 1.57079632679489661923
    result = tl.where(large, offset + low, tl.where(middle, offset * 0.5 + low, low))
    return copysign(tl.where(magnitude == float("inf"), low * 0.0 + 1.57079632679489661923, result), x)


@triton.jit
def atan2(y, x):
    a, b = tl.abs(y), tl.abs(x)
    steep = a > b
    numerator, denominator = tl.where(steep, b, a), tl.where(steep, a, b)
    same = a == b  # also 0/0 and inf/inf
    quotient = tl.where(same, tl.where(a == 0.0, a, a * 0.0 + 1.0), numerator / denominator)
    quotient = tl.where(same & (a == float("inf")), 1.0, quotient).to(y.dtype)
    angle = atan(quotient)
    angle = tl.where(steep, (1.57079632679489661923 - angle), angle)
    behind = copysign(angle * 0.0 + 1.0, x) < 0.0
    return tl.where((x != x) | (y != y), x + y, copysign(tl.where(behind, 3.14159265358979323846 - angle, angle), y))


@triton.jit
def asin(x):
    return atan2(x, tl.sqrt((1.0 - x) * (1.0 + x)))


@triton.jit
def acos(x):
    return 2.0 * atan2(tl.sqrt(1.0 - x), tl.sqrt(1.0 + x))


@triton.jit
def tan(x):
    return tl.sin(x) / tl.cos(x)


@triton.jit
def erfc(x):
    """Complementary error function: 1 - erf(x) below 0.5, else Cody's rational functions times exp(-x*x)."""
    y = tl.minimum(tl.maximum(x, 0.5), 30.0)
    p = ((((((((y * 2.15311535474403846e-8 + 5.64188496988670089e-1) * y + 8.88314979438837594) * y
              + 6.61191906371416295e1) * y + 2.98635138197400131e2) * y + 8.81952221241769090e2) * y
           + 1.71204761263407058e3) * y + 2.05107837782607147e3) * y + 1.23033935479799725e3)  # fmt: skip
    q = ((((((((y + 1.57449261107098347e1) * y + 1.17693950891312499e2) * y + 5.37181101862009858e2) * y
             + 1.62138957456669019e3) * y + 3.29079923573345963e3) * y + 4.36261909014324716e3) * y
          + 3.43936767414372164e3) * y + 1.23033935480374942e3)  # fmt: skip
    w = 1.0 / (y * y)
    far = w * (((((w * 1.63153871373020978e-2 + 3.05326634961232344e-1) * w + 3.60344899949804439e-1) * w
                 + 1.25781726111229246e-1) * w + 1.60837851487422766e-2) * w + 6.58749161529837803e-4)  # fmt: skip
    far = far / (((((w + 2.56852019228982242) * w + 1.87295284992346725) * w + 5.27905102951428412e-1) * w
                  + 6.05183413124413191e-2) * w + 2.33520497626869185e-3)  # fmt: skip
    scaled = tl.where(y > 4.0, (0.56418958354775628695 - far) / y, p / q)
    head = tl.floor(y * 16.0) * 0.0625  # y*y in two parts: its rounding error would be scaled by exp
    tail = (y - head) * (y + head)
    result = exp(-head * head) * exp(-tail) * scaled
    return tl.where(x < 0.5, 1.0 - tl.erf(x), tl.where(x != x, x, result))


@triton.jit
def powf(x, y):
    """x**y, computed in float64: within half an ulp for float32, about |y*log(x)| ulp for float64."""
    a, b = x.to(tl.float64), y.to(tl.float64)
    magnitude = tl.abs(a)
    result = tl.exp2(b * tl.log2(magnitude))
    whole = tl.floor(b) == b
    odd = whole & (tl.floor(b * 0.5) * 2.0 != b) & (tl.abs(b) < 9007199254740992.0)
    negative = copysign(magnitude * 0.0 + 1.0, a) < 0.0
    result = tl.where((a < 0.0) & ~whole & (magnitude != float("inf")), float("nan"), result)
    result = tl.where(odd & negative, result * -1.0, result)
    one = (b == 0.0) | (a == 1.0) | ((magnitude == 1.0) & (tl.abs(b) == float("inf")))
    return tl.where(one, 1.0, result).to(x.dtype)


# Integers.


@triton.jit
def floor_div(a, b):
    """Integer division rounded down; Triton's // rounds towards zero."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def ceil_div(a, b):
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) == (b < 0)), q + 1, q)


@triton.jit
def floor_mod(a, b):
    return a - floor_div(a, b) * b


# Combinations.


@triton.jit
def maximum(a, b):
    """The extremum of two numbers; NaN if either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The extremum of two numbers; NaN if either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maxnum(a, b):
    """The larger number; if one is NaN, the other. The interpreter of triton 3.6 returns NaN, hence the branch."""
    if INTERPRETED:
        return tl.where(a != a, b, tl.where(b != b, a, tl.maximum(a, b)))
    else:
        return tl.maximum(a, b)


@triton.jit
def minnum(a, b):
    if INTERPRETED:
        return tl.where(a != a, b, tl.where(b != b, a, tl.minimum(a, b)))
    else:
        return tl.minimum(a, b)


# Bits.


@triton.jit
def cttz(x):
    """Number of trailing zero bits of a nonzero integer: the float64 exponent of its lowest set bit."""
    power = (x & -x).to(tl.float64).to(tl.int64, bitcast=True)
    return (((power >> 52) & 0x7FF) - 1023).to(x.dtype)
