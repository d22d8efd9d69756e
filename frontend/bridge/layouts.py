"""PyTorch's rules for the layout of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


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
    """Guards on each condition by which eager mode finds whether a tensor has strides in another shape, which may hold
    one -1: then ``reshape`` returns a view."""
    from torch._prims_common import infer_size
    from torch._subclasses.fake_impls import _compute_stride

    _compute_stride(tensor.shape, tensor.stride(), infer_size(tuple(shape), tensor.numel()))
