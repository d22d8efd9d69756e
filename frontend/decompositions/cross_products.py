"""Decomposes the cross product of vectors of three components."""

from __future__ import annotations

import torch


def cross(a: torch.Tensor, b: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """``linalg.cross`` of slices for the components. PyTorch's form gathers both tensors by a computed index, four
    times for each element."""
    torch._check(a.dim() == b.dim(), lambda: "linalg.cross: inputs must have the same number of dimensions.")
    sizes = a.size(dim), b.size(dim)
    torch._check(
        sizes[0] == 3 and sizes[1] == 3,
        lambda: f"linalg.cross: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}",
    )
    dim %= a.dim()
    (a0, a1, a2), (b0, b1, b2) = ([x.select(dim, k) for k in range(3)] for x in (a, b))
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], dim)
