"""Matrices made of matrices and vectors: ``block_diag``, ``vander``, ``multi_dot``, whose C++ reads sizes as integers.

For constant sizes, and where the arguments are wrong, the original rules are used, which raise the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.operators import AutogradKernel
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes
from symshape.frontend.decompositions.result_types import result_type

aten: Any = torch.ops.aten
Size = Any  # int | torch.SymInt


def matrix_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    return {
        aten.block_diag.default: _block_diag,
        aten.linalg_vander.default: _linalg_vander,
        aten.vander.default: _vander,
        aten.linalg_multi_dot.default: _multi_dot,
    }


def _are_ours(tensors: Sequence[torch.Tensor]) -> bool:
    return any(is_general(size) for x in tensors for size in x.shape) and not any(map(has_unbacked_sizes, tensors))


def _block_diag(original: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """(r_i, c_i) each, a vector as one row, a scalar as one element: (sum of r_i, sum of c_i)."""
    if not _are_ours(tensors) or any(x.dim() > 2 for x in tensors):
        return original(tensors)
    dtype = result_type(tensors)
    blocks = [x.to(dtype).view([1] * (2 - x.dim()) + [*x.shape]) for x in tensors]
    width: Size = sum(block.size(1) for block in blocks)
    before: Size = 0
    rows = []
    for block in blocks:
        rows.append(torch.nn.functional.pad(block, (before, width - before - block.size(1))))
        before = before + block.size(1)
    return torch.cat(rows)


def _linalg_vander(original: Any, x: torch.Tensor, *, N: Size | None = None) -> Any:
    """``x`` (..., n): (..., n, N), the powers 0 to N - 1; N is n by default. As in C++ each power is the one before
    times ``x``."""
    if not _are_ours([x]) or x.dim() == 0 or x.dtype == torch.bool:
        return original(x, N=N)
    count: Size = x.size(-1) if N is None else N
    if not count > 1:
        return original(x, N=N)
    wide = x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
    powers = wide.unsqueeze(-1).expand(*x.shape, count - 1).cumprod(-1)
    return torch.cat((powers.new_ones((*x.shape, 1)), powers), -1)


def _vander(original: Any, x: torch.Tensor, N: Size | None = None, increasing: bool = False) -> Any:
    """``x`` (n,): (n, N), the largest power first unless ``increasing``. C++ has no gradient, and raises."""
    count: Size = x.size(0) if N is None and x.dim() == 1 else N
    is_differentiated = torch.is_grad_enabled() and x.requires_grad
    if not _are_ours([x]) or x.dim() != 1 or is_differentiated or x.dtype == torch.bool or not count > 1:
        return original(x, N, increasing)
    rising = torch.linalg.vander(x, N=count)
    return rising if increasing else rising.flip(1)


def _multi_dot(original: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The product of matrices, of which the first may be a row and the last a column, in eager mode's order: which
    order is the cheapest is a guard."""
    ranks = [x.dim() for x in tensors]
    inner = all(rank == 2 for rank in ranks[1:-1]) and ranks[0] in (1, 2) and ranks[-1] in (1, 2)
    if len(tensors) < 3 or not inner or not _are_ours(tensors) or len({x.dtype for x in tensors}) != 1:
        return original(tensors)
    factors = list(tensors)
    if ranks[0] == 1:
        factors[0] = factors[0].unsqueeze(0)
    if ranks[-1] == 1:
        factors[-1] = factors[-1].unsqueeze(1)
    found = _product(factors, _splits(factors), 0, len(factors) - 1)
    sizes = ([found.size(0)] if ranks[0] == 2 else []) + ([found.size(1)] if ranks[-1] == 2 else [])
    return found.view(sizes)


def _splits(factors: Sequence[torch.Tensor]) -> dict[tuple[int, int], int]:
    """For each run of factors after which one it is split (Cormen et al., Introduction to Algorithms, 15.2), as
    ``aten/src/ATen/native/LinearAlgebra.cpp`` finds it: of three factors the left pair where both cost the same."""
    sizes: list[Size] = [*(x.size(0) for x in factors), factors[-1].size(1)]
    count = len(factors)
    if count == 3:
        a, b, c, d = sizes
        return {(0, 2): 0 if a * c * (b + d) > b * d * (a + c) else 1, (0, 1): 0, (1, 2): 1}
    cost: dict[tuple[int, int], Size] = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            for k in range(i, j):
                here = cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if k == i or here < cost[i, j]:
                    cost[i, j], splits[i, j] = here, k
    return splits


def _product(factors: Sequence[torch.Tensor], splits: dict[tuple[int, int], int], first: int, last: int) -> Any:
    if first == last:
        return factors[first]
    after = splits[first, last]
    return torch.mm(_product(factors, splits, first, after), _product(factors, splits, after + 1, last))
