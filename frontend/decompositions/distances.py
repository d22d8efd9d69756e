"""Distances between rows in parts: differences, and a norm of each over the last dim."""

from __future__ import annotations

import math
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes


def cdist_forward(a: torch.Tensor, b: torch.Tensor, p: float, mode: int | None) -> Any:
    """``a`` (..., P, M) and ``b`` (..., R, M): (..., P, R). In no mode by matrix products: one pass over the rows takes
    no longer, and nothing cancels."""
    if has_unbacked_sizes(a) or has_unbacked_sizes(b):
        return NotImplemented
    if a.size(-1) == 0:
        return (a.unsqueeze(-2) - b.unsqueeze(-3)).sum(-1)
    return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def pdist_forward(x: torch.Tensor, p: float = 2) -> Any:
    """``x`` (N, M): the distance of each pair of rows, N*(N-1)/2 of them in order of the first row."""
    if has_unbacked_sizes(x):
        return NotImplemented
    rows, length = x.shape
    pairs = rows * (rows - 1) // 2
    if rows < 2 or length == 0:
        return x.new_zeros(pairs)
    pair = torch.arange(pairs, device=x.device)
    # The first row is the root of a quadratic equation, of half integers: nothing is lost to rounding.
    half = rows - 0.5
    first = (half - (half * half - 2.0 * pair.to(torch.float64) - 1.0).sqrt()).to(torch.int64)
    second = pair - rows * first + first * (first + 1) // 2 + first + 1
    return norm(x[first] - x[second], p)


def norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    """Over the last dim, which is not empty; NaN where there is one."""
    size = difference.abs()
    if p == 0:
        return size.ceil().clamp(max=1).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    if math.isinf(p):
        return size.amax(-1)
    return (size**p).sum(-1) ** (1 / p)
