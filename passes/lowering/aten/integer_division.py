"""Rules of ``gcd`` and of integer division that truncates."""

from __future__ import annotations

from typing import Any

from symshape.passes.lowering.aten.arithmetic import BITS, UNSIGNED, absolute
from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import Rule, apply, body_op, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar


def greatest_common_divisor(m: Body, x: Scalar, y: Scalar) -> Scalar:
    """Stein's: of two odd numbers the difference is even, so that each step halves their sum. The least number's
    magnitude is an unsigned one, and so are all others here."""
    dtype = x.dtype
    bits = BITS[dtype] - (dtype not in UNSIGNED)
    a, b = absolute(m, x), absolute(m, y)
    shift = _zeros_below(m, m.arithmetic("or", a, b))
    a, b = _odd(m, a), _odd(m, b)
    for _ in range(bits):
        low, high = m.op("arith.minui", dtype, a, b), m.op("arith.maxui", dtype, a, b)
        a, b = low, _odd(m, m.sub(high, low))
    return m.arithmetic("shl", m.arithmetic("or", a, b), shift)  # where one is 0, or both are the same


def _zeros_below(m: Body, x: Scalar) -> Scalar:
    """The number of trailing zero bits; for 0 the width minus 1."""
    highest = m.constant(1 << BITS[x.dtype] - 1, x.dtype)
    return m.math("cttz", m.arithmetic("or", x, highest))


def _odd(m: Body, x: Scalar) -> Scalar:
    return m.op("arith.shrui", x.dtype, x, _zeros_below(m, x))


def _gcd(b: Builder, x: Any, y: Any) -> Tensor:
    dtype = b.results[0].dtype
    if dtype not in BITS:
        raise Unsupported(f"divisors of numbers of type {dtype}")
    wide = dtype if dtype in ("i32", "i64") else "i32"
    # Numbers of another type are wrapped first: -2 is 254 where the result is unsigned.
    return apply(b, (x, y), (dtype, dtype), lambda m, *v: greatest_common_divisor(m, *(m.cast(n, wide) for n in v)))


RULES: dict[str, Rule] = {
    "aten.gcd.default": _gcd,
    "prims.div.default": to_result(body_op("div")),  # of integers rounded towards zero
}
