"""Selecting by a boolean mask: the positions where it is true, found once for a mask, and what reads at them.

``compact-masks`` calls these. ``selected`` and ``places`` are lowered; as they stand here they mean the same.
"""

from __future__ import annotations

import torch


def positions(mask: torch.Tensor, target: str) -> torch.Tensor:
    """int64: where a bool tensor is true, as row-major positions in it, in order. ``target``: "cpu" or "triton".

    The host waits for a GPU once, for their number.
    """
    if target == "cpu":
        from symshape.runtime.cpu import compact as compact_cpu

        return compact_cpu.positions(mask)
    from symshape.runtime.triton import compact as compact_triton

    return compact_triton.positions(mask)


def selected(x: torch.Tensor, at: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
    """The elements of x at positions in its dims dim, ..., dim + rank - 1, which become one."""
    return x.flatten(dim, dim + rank - 1).index_select(dim, at)


def places(mask: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Positions as an index for each dim of the mask: (number of positions, rank of the mask)."""
    return torch.stack(torch.unravel_index(at, mask.shape), 1)
