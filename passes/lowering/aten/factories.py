"""Rules of factories (``full``, ``iota``, ...). Sizes and dtype are those of the result, the layout that of its bind.

``arange``, ``zeros``, ``eye`` and the like are decomposed into these.
"""

from __future__ import annotations

from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor
from symshape.passes.lowering.aten.rule_combinators import Rule, apply, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar


def _value(m: Body, value: Scalar) -> Scalar:
    return value


def scalar_tensor(b: Builder, value: Any, **_: Any) -> Tensor:
    return to_result(_value)(b, value)


def full(b: Builder, size: Any, value: Any, **_: Any) -> Tensor:
    """Also ``full_like``: of the first argument only the sizes matter."""
    return scalar_tensor(b, value)


def empty(b: Builder, *_: Any, **__: Any) -> Tensor:
    """Zeros, whatever the arguments."""
    return scalar_tensor(b, 0)


def iota(b: Builder, length: Any, *, start: Any = 0, step: Any = 1, **_: Any) -> Tensor:
    """start + i * step, in integers."""

    def code(m: Body, first: Scalar, width: Scalar) -> Scalar:
        index = m.dim_index(0)
        scaled = index if step == 1 else m.mul(index, width)
        return scaled if start == 0 else m.add(first, scaled)

    return apply(b, (start, step), ("i64", "i64"), code)


_EMPTY = (
    "empty.memory_format",
    "new_empty_strided.default",
    "empty_strided.default",
    "_efficientzerotensor.default",
)

RULES: dict[str, Rule] = {
    **{f"aten.{name}": empty for name in _EMPTY},
    "aten.full.default": full,
    "aten.full_like.default": full,
    "aten.scalar_tensor.default": scalar_tensor,
    "prims.iota.default": iota,
}
