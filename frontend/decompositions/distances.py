"""Decomposes distances between rows: differences, and a norm over the last dim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes


def cdist_forward(a: torch.Tensor, b: torch.Tensor, p: float, mode: int | None) -> Any:
    """``a`` (..., P, M) and ``b`` (..., R, M): (..., P, R). In no mode by matrix products: one pass over the rows takes
    no longer, and nothing cancels."""
    if has_unbacked_sizes(a) or has_unbacked_sizes(b):
        return NotImplemented
    a, b = _extended(a, p), _extended(b, p)
    return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def cdist_backward(gradient: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, distance: torch.Tensor) -> Any:
    """The gradient by ``a``, of its shape with the batch dims that it is expanded to, from that by ``distance`` (...,
    P, R). PyTorch's tracing rule compares each size with 0."""
    if any(has_unbacked_sizes(x) for x in (a, b)):
        return NotImplemented
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    slope = _slope(difference, p, distance.unsqueeze(-1)) * gradient.unsqueeze(-1)
    return slope.sum(-2)


def _slope(difference: torch.Tensor, p: float, distance: torch.Tensor) -> torch.Tensor:
    """The derivative of the norm by each component of a difference; 0 where the norm is 0, as in eager mode."""
    size = difference.abs()
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return difference.sign()
    if math.isinf(p):
        return torch.where(size == distance, difference.sign(), 0)
    if p == 2:
        return torch.where(distance == 0, 0, difference / distance)
    if p < 2:
        powers = difference.sign() * size ** (p - 1)
        powers = torch.where(difference == 0, 0, powers) if p < 1 else powers
    else:
        powers = difference * size ** (p - 2)
    return torch.where(distance == 0, 0, powers / distance ** (p - 1))


def pdist_forward(x: torch.Tensor, p: float = 2) -> Any:
    """``x`` (N, M): the distance of each pair of rows, N*(N-1)/2 of them in order of the first row."""
    if has_unbacked_sizes(x):
        return NotImplemented
    x = _extended(x, p)
    first, second = pairs(x)
    return norm(x[first] - x[second], p)


def pairs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The indices of the first and the second row of each pair of rows, in order of the first."""
    rows = x.size(0)
    count = rows * (rows - 1) // 2  # 0 of no rows too
    pair = torch.arange(count, device=x.device)
    # The first row is the root of a quadratic equation, of half integers: nothing is lost to rounding.
    half = rows - 0.5
    first = (half - (half * half - 2.0 * pair.to(torch.float64) - 1.0).sqrt()).to(torch.int64)
    second = pair - rows * first + first * (first + 1) // 2 + first + 1
    return first, second


def _extended(x: torch.Tensor, p: float) -> torch.Tensor:
    """Rows with a zero behind them if there is to be a maximum of them, which is one of nothing else. Not of the
    differences: gathers may raise an error, so what is read of them in part is stored, for all pairs."""
    return torch.constant_pad_nd(x, (0, 1)) if math.isinf(p) else x


def norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    """Over the last dim, 0 of nothing; NaN where there is one. For a maximum, of `_extended` rows."""
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


def norm_of_order(x: torch.Tensor, p: Any, dims: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """The norm of an order that may be symbolic, but is none of 0, 1, 2 and infinity. Its gradient, which is PyTorch's
    of these parts, is 0 where the norm is 0, as eager mode's is."""
    size = x.abs()
    total = torch.where(size == 0, 0, torch.where(size == 0, 1, size) ** p).sum(list(dims), keepdim)
    return torch.where(total == 0, 0, torch.where(total == 0, 1, total) ** (1 / p))
