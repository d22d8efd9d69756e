"""Decomposes the gradient of replication padding: each element is added where it was taken from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_MOST = 8  # elements of a border; sums of more are kernels of their own


def replication_pad_backward(gradient: torch.Tensor, x: torch.Tensor, padding: Sequence[Any]) -> torch.Tensor:
    """The gradient of ``replication_pad1d`` to ``3d``, of ``x``'s shape; pads are from the last dim inwards, negative
    ones cut off."""
    if all(isinstance(amount, int) and 0 <= amount <= _MOST for amount in padding):
        for i in range(len(padding) // 2):
            gradient = _with_borders(gradient, x.dim() - 1 - i, padding[2 * i], padding[2 * i + 1])
        return gradient.clone(memory_format=torch.contiguous_format)
    return _at_indices(gradient, x, padding)


def _with_borders(gradient: torch.Tensor, dim: int, before: int, after: int) -> torch.Tensor:
    """The part of a gradient that is no border of a dim, with what the border before adds up to at its first index, and
    that behind at its last."""
    size = gradient.size(dim) - before - after
    shape = [-1 if d == dim else 1 for d in range(gradient.dim())]
    position = torch.arange(size, device=gradient.device).view(shape)
    found = gradient.narrow(dim, before, size)
    if before:  # added in eager mode's order
        first = sum(gradient.narrow(dim, k, 1) for k in range(before + 1))
        found = torch.where(position == 0, first, found)
    for k in range(after):
        found = torch.where(position == size - 1, found + gradient.narrow(dim, before + size + k, 1), found)
    return found


def _at_indices(gradient: torch.Tensor, x: torch.Tensor, padding: Sequence[Any]) -> torch.Tensor:
    """The gradient as a scatter of each element."""
    dims = len(padding) // 2
    indices: list[torch.Tensor | None] = [None] * (x.dim() - dims)
    for i, dim in enumerate(range(x.dim() - dims, x.dim())):
        size, before = x.size(dim), padding[2 * (dims - 1 - i)]
        index = torch.arange(gradient.size(dim), device=x.device) - before
        indices.append(index.clamp(0, size - 1).view([-1] + [1] * (dims - 1 - i)))
    total = torch.zeros(x.shape, dtype=gradient.dtype, device=x.device)
    padded: torch.Tensor = torch.ops.aten.index_put(total, indices, gradient, True)
    return padded
