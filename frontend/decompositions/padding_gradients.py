"""Decomposes the gradient of replication padding: each element is added where it was taken from."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def replication_pad_backward(gradient: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of ``replication_pad1d`` to ``3d``, of ``x``'s shape; pads are from the last dim inwards, negative
    ones cut off."""
    dims = len(padding) // 2
    indices: list[torch.Tensor | None] = [None] * (x.dim() - dims)
    for i, dim in enumerate(range(x.dim() - dims, x.dim())):
        size, before = x.size(dim), padding[2 * (dims - 1 - i)]
        index = torch.arange(gradient.size(dim), device=x.device) - before
        indices.append(index.clamp(0, size - 1).view([-1] + [1] * (dims - 1 - i)))
    total = torch.zeros(x.shape, dtype=gradient.dtype, device=x.device)
    padded: torch.Tensor = torch.ops.aten.index_put(total, indices, gradient, True)
    return padded
