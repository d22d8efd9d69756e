"""Rules of factories (``full``, ``arange``, ...). Sizes and dtype are those of the result, the layout that of its
bind."""

from __future__ import annotations

from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor
from symshape.passes.lowering.aten.rule_combinators import Rule, apply, number, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type, is_float
from symshape.prover.numbers.expr import Expr, as_expr


def _value(m: Body, value: Scalar) -> Scalar:
    return value


def _fill(b: Builder, value: Any) -> Tensor:
    return to_result(_value)(b, value)


def filled(value: Any) -> Rule:
    """Every element is ``value``, whatever the arguments; an empty tensor is one of zeros."""
    return lambda b, *_, **__: _fill(b, value)


def full(b: Builder, size: Any, value: Any, **_: Any) -> Tensor:
    """Also ``full_like``: of the first argument only the sizes matter."""
    return _fill(b, value)


def new_full(b: Builder, x: Tensor, size: Any, value: Any, **_: Any) -> Tensor:
    return _fill(b, value)


def scalar_tensor(b: Builder, value: Any, **_: Any) -> Tensor:
    return _fill(b, value)


def steps(b: Builder, start: Any, step: Any) -> Tensor:
    """start + i * step, in integers where both are."""
    dtype = compute_type(b.results[0].dtype)
    if isinstance(start, (int, Expr)) and isinstance(step, (int, Expr)) or not is_float(dtype):
        dtype = "i64"

    def code(m: Body, first: Scalar, width: Scalar) -> Scalar:
        index = m.cast(m.dim_index(0), dtype)
        scaled = index if step == 1 else m.mul(index, width)
        return scaled if start == 0 else m.add(first, scaled)

    return apply(b, (start, step), (dtype, dtype), code)


def arange(b: Builder, end: Any, **_: Any) -> Tensor:
    return steps(b, 0, 1)


def arange_from(b: Builder, start: Any, end: Any, step: Any = 1, **_: Any) -> Tensor:
    return steps(b, start, step)


def iota(b: Builder, length: Any, *, start: Any = 0, step: Any = 1, **_: Any) -> Tensor:
    return steps(b, start, step)


def linspace(b: Builder, start: Any, end: Any, count: Any, **_: Any) -> Tensor:
    """Computed from the nearer end, so that both ends are exact; integers are computed in f64 and truncated."""
    result = b.results[0].dtype
    dtype = compute_type(result) if is_float(result) else "f64"
    count = as_expr(count)

    def code(m: Body, first: Scalar, last: Scalar) -> Scalar:
        at = m.dim_index(0)
        gaps = m.max(m.size(count - 1), m.constant(1, "i64"))
        step = m.div(m.sub(last, first), m.cast(gaps, dtype))
        from_end = m.cast(m.sub(m.size(count - 1), at), dtype)
        near_start = m.compare("lt", at, m.max(m.size(count // 2), m.constant(1, "i64")))
        rising = m.add(first, m.mul(step, m.cast(at, dtype)))
        return m.select(near_start, rising, m.sub(last, m.mul(step, from_end)))

    return apply(b, (start, end), (dtype, dtype), code)


def eye(b: Builder, *_: Any, **__: Any) -> Tensor:
    return apply(b, (), (), lambda m: m.compare("eq", m.dim_index(0), m.dim_index(1)))


def triangle(keep: str) -> Rule:
    """Keeps the elements whose column minus row compares so with the diagonal, in the last two dims."""

    def rule(b: Builder, x: Tensor, diagonal: Any = 0) -> Tensor:
        def code(m: Body, value: Scalar) -> Scalar:
            offset = m.sub(m.dim_index(x.rank - 1), m.dim_index(x.rank - 2))
            kept = m.compare(keep, offset, number(m, diagonal, "i64"))
            return m.select(kept, value, m.constant(0, value.dtype))

        return to_result(code)(b, x)

    return rule


_ZERO = (
    "zeros.default",
    "zeros_like.default",
    "new_zeros.default",
    "empty.memory_format",
    "empty_like.default",
    "new_empty.default",
    "new_empty_strided.default",
    "empty_strided.default",
    "empty_permuted.default",
    "_efficientzerotensor.default",
)
_ONE = ("ones.default", "ones_like.default", "new_ones.default")

RULES: dict[str, Rule] = {
    **{f"aten.{name}": filled(0) for name in _ZERO},
    **{f"aten.{name}": filled(1) for name in _ONE},
    "aten.full.default": full,
    "aten.full_like.default": full,
    "aten.new_full.default": new_full,
    "aten.scalar_tensor.default": scalar_tensor,
    "aten.arange.default": arange,
    "aten.arange.start": arange_from,
    "aten.arange.start_step": arange_from,
    "prims.iota.default": iota,
    "aten.linspace.default": linspace,
    "aten.eye.default": eye,
    "aten.eye.m": eye,
    "aten.tril.default": triangle("le"),
    "aten.triu.default": triangle("ge"),
}
