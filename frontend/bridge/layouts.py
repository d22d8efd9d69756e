"""PyTorch's rules for the layout of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from symshape.frontend.bridge.general_shape_env import if_larger


def memory_format_of(tensor: torch.Tensor) -> torch.memory_format:
    """The memory format that results of operators on this tensor have."""
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(tensor)


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether the strides are those of images in channels-last. Asks no size whether it is larger than 1: then any
    answer serves."""
    from torch._prims_common import are_strides_like_channels_last_or_false

    return tensor.dim() == 4 and are_strides_like_channels_last_or_false(tensor.shape, tensor.stride())


def elementwise_order(*tensors: torch.Tensor) -> list[int]:
    """The order of dims in the memory of an elementwise result: outermost first. The operands have equal shapes."""
    from torch._prims_common import compute_elementwise_output_logical_to_physical_perm

    order, _ = compute_elementwise_output_logical_to_physical_perm(*tensors, _skip_checks=True)
    return list(order)


def guard_strides_of_reshape(tensor: torch.Tensor, shape: Sequence[Any]) -> None:
    """Guards on each condition by which eager mode finds whether a tensor that has elements has strides in another
    shape, which may hold one -1: then ``reshape`` returns a view (``_compute_stride`` in ATen/TensorUtils.cpp)."""
    from torch._prims_common import infer_size, is_contiguous_or_false

    if is_contiguous_or_false(tensor):
        return
    sizes, strides = list(infer_size(tuple(shape), tensor.numel())), tensor.stride()
    inner: Any = strides[-1] if strides else 1
    elements: Any = 1  # of the dims that are contiguous with one another
    parts: Any = 1  # of the new dims among them
    for d in reversed(range(tensor.dim())):
        elements = elements * tensor.size(d)
        if d and (_of_elements(tensor.size(d - 1) == 1) or bool(strides[d - 1] == elements * inner)):
            continue
        while sizes and (_of_elements(parts < elements) or _of_elements(sizes[-1] == 1)):
            parts = parts * sizes.pop()
        if _of_elements(parts != elements):
            return
        elements = parts = 1
        inner = strides[d - 1]


def _of_elements(condition: Any) -> bool:
    """Whether a condition on sizes holds, none of which is 0, with a guard that does not say that none is."""
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    decided = if_larger(condition.node.expr, least_size=1)
    if decided is not None:
        return decided
    expr = condition.node.expr
    if isinstance(expr, sympy.core.relational.Relational):
        common = sympy.gcd(expr.lhs, expr.rhs)
        expr = expr.func(sympy.cancel(expr.lhs / common), sympy.cancel(expr.rhs / common))
        if expr in (sympy.Lt(1, expr.rhs), sympy.Gt(expr.lhs, 1)):
            expr = sympy.Ne(*expr.args)
    return bool(condition.node.shape_env.evaluate_expr(expr))
