"""Rules of scans (``cumsum``, ``cummax``, ...): points are combined in order, as in eager mode on CPUs.

Sums and products accumulate in eager mode's type: f64 for f32, f32 for half types, i64 for integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported, highest, lowest
from symshape.passes.lowering.aten.reductions import ordered
from symshape.passes.lowering.aten.rule_combinators import Rule
from symshape.passes.lowering.aten.scalar_body import Scalar, is_float

_ACCUMULATOR = {"f32": "f64", "f16": "f32", "bf16": "f32"}


def _require_cpu(b: Builder) -> None:
    if b.target != "cpu":
        raise Unsupported("kernels of GPUs have no scans")


def accumulated(identity: float, combine: Callable[[Builder, Scalar, Scalar], Scalar]) -> Rule:
    """A rule of a scan by ``combine(b, carried value, element)``."""

    def rule(b: Builder, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        _require_cpu(b)
        result = b.results[0].dtype
        if result == "i1" or result.startswith("complex"):
            raise Unsupported(f"a scan of {result}")
        if not x.rank:
            return b.cast(x, result)
        wide = _ACCUMULATOR.get(result, result if is_float(result) else "i64")
        start = [(wide, identity)]
        # In eager mode the element has the result's type before it is accumulated.
        elements = b.cast(b.cast(x, result), wide)
        return b.scan([elements], dim, start, [result], lambda carried, new: [combine(b, carried[0], new[0])])[0]

    return rule


def _log_add_exp(b: Builder, total: Scalar, x: Scalar) -> Scalar:
    """log(exp(total) + exp(x)) from the larger one; equal infinities give themselves."""
    m = b.body
    smaller = m.math("exp", m.neg(m.math("absf", m.sub(x, total))))
    found = m.add(m.max(x, total), m.math("log1p", smaller))
    infinite = m.compare("eq", m.math("absf", x), m.constant(float("inf"), x.dtype))
    return m.select(m.op("arith.andi", "i1", infinite, m.compare("eq", x, total)), x, found)


def extremum(kind: str, least: Callable[[str], Any]) -> Rule:
    """``cummax`` and ``cummin``: values and where they are. Of equal ones the last; NaN is above and below all."""

    def rule(b: Builder, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        _require_cpu(b)
        if not x.rank:
            return b.cast(x, x.dtype), b.full(x.sizes, "i64", 0)
        elements = ordered(b, x)
        along = b.dim(dim, x.rank)

        def code(carried: Sequence[Scalar], new: Sequence[Scalar]) -> list[Scalar]:
            m, (best, at), (value,) = b.body, carried, new
            better = m.compare(kind, value, best)
            if is_float(value.dtype):
                better = m.op("arith.ori", "i1", m.is_nan(value), better)  # a comparison with NaN is false
            index = m.dim_index(along)
            return [m.select(better, value, best), m.select(better, index, at)]

        start = [(elements.dtype, least(elements.dtype)), ("i64", 0)]
        value, index = b.scan([elements], dim, start, [x.dtype, "i64"], code)
        return value, index

    return rule


RULES: dict[str, Rule] = {
    "aten.cumsum.default": accumulated(0, lambda b, total, x: b.body.add(total, x)),
    "aten.cumprod.default": accumulated(1, lambda b, total, x: b.body.mul(total, x)),
    "aten.logcumsumexp.default": accumulated(float("-inf"), _log_add_exp),
    "aten.cummax.default": extremum("ge", lowest),
    "aten.cummin.default": extremum("le", highest),
}
