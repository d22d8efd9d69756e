"""Rules of pointwise operators that copy, cast or select."""

from __future__ import annotations

from typing import Any

from symshape.passes.lowering.aten.builder import Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import Rule, apply, body_op, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type


def identity(m: Body, x: Scalar) -> Scalar:
    return x


def to_copy(b: Builder, x: Tensor, *, device: Any = None, layout: Any = None, **_: Any) -> Tensor:
    """A cast. The memory format is in the bind; pinning is done by the host; another device is a transfer."""
    if device is not None:
        raise Unsupported("a copy that names its device may be a transfer")
    return cast(b, x)


def cast(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """An explicit cast of the program; unlike the cast of a result to a half type, a kernel never omits it."""
    dtype = b.results[0].dtype
    rounds = compute_type(dtype) != dtype and x.dtype != dtype
    return to_result((lambda m, v: m.round_explicitly(v, dtype)) if rounds else identity, 1)(b, x)


def copy(b: Builder, target: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """``source`` in the shape and dtype of ``target``, whose values do not matter."""
    return to_result(identity)(b, source)


def where(b: Builder, condition: Tensor, x: Any, y: Any) -> Tensor:
    dtype = compute_type(b.results[0].dtype)
    return apply(b, (condition, x, y), ("i1", dtype, dtype), body_op("select"))


_copy = to_result(identity, 1)


def _ignoring_format(b: Builder, x: Tensor, *, memory_format: Any = None) -> Tensor:
    return _copy(b, x)


RULES: dict[str, Rule] = {
    "aten.clone.default": _ignoring_format,
    "aten.lift_fresh_copy.default": _ignoring_format,
    "aten.detach_copy.default": _ignoring_format,
    "aten.conj_physical.default": _ignoring_format,
    "aten.copy.default": copy,
    "aten._to_copy.default": to_copy,
    "prims.convert_element_type.default": cast,
    "aten.where.self": where,
}
