"""Tensors filled with a number and shaped like another, without questions about sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Memory format -> the dims of a result, from the one that is outermost in memory to the innermost.
_ORDERS = {torch.channels_last: (0, 2, 3, 1), torch.channels_last_3d: (0, 2, 3, 4, 1)}


def full_like_in_format(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``full_like``, which fills a contiguous tensor and asks whether it has the named format.
    For a contiguous result there is nothing to ask, and a channels-last one is filled in its order. Gradients of what
    was written to slices one after the other start from such tensors."""

    def decomposition(
        x: torch.Tensor, value: Any, *, memory_format: torch.memory_format | None = None, **named: Any
    ) -> Any:
        if memory_format in (None, torch.preserve_format):
            return rule(x, value, **named)
        order = _ORDERS.get(memory_format, tuple(range(x.dim())))
        if len(order) != x.dim():
            return rule(x, value, memory_format=memory_format, **named)  # raises
        like: dict[str, Any] = {"dtype": x.dtype, "device": x.device} | {
            k: v for k, v in named.items() if v is not None
        }
        filled = torch.full([x.size(dim) for dim in order], value, **like)
        if memory_format not in _ORDERS:
            return filled
        return filled.permute(sorted(range(x.dim()), key=order.__getitem__))

    return decomposition
