"""Selection by a boolean mask: the positions where it is true, found once for a mask, and gathers at them.

The pass ``compact-masks`` emits calls of these operators. ``select_at`` and ``unravel_positions`` are lowered to
kernels; the implementations here are the reference.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.machine.instruction_sets import NATIVE

_library: Any = torch.library.Library
_LIBRARY = _library("symshape", "FRAGMENT")
_LIBRARY.define("mask_positions(Tensor mask, str target, str cpu='native') -> Tensor")
_LIBRARY.define("select_at(Tensor x, Tensor positions, int dim, int rank) -> Tensor")
_LIBRARY.define("unravel_positions(Tensor mask, Tensor positions) -> Tensor")


def mask_positions(mask: torch.Tensor, target: str, cpu: str = NATIVE) -> torch.Tensor:
    """int64: the row-major positions where a bool tensor is true, in order. ``target``: "cpu" or "triton"; ``cpu``: the
    instruction set that CPU code may use (`symshape/machine/instruction_sets.py`).

    On a GPU the host waits once, for the number of positions.
    """
    if target == "cpu":
        from symshape.runtime.cpu import compact as compact_cpu

        return compact_cpu.positions(mask, cpu)
    from symshape.runtime.triton import compact as compact_triton

    return compact_triton.positions(mask)


def select_at(x: torch.Tensor, positions: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
    """The elements of x at row-major positions in its dims dim, ..., dim + rank - 1, which become one."""
    return x.flatten(dim, dim + rank - 1).index_select(dim, positions)


def unravel_positions(mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Positions as an index for each dim of the mask: (number of positions, rank of the mask)."""
    return torch.stack(torch.unravel_index(positions, mask.shape), 1)


_LIBRARY.impl("mask_positions", mask_positions, "CompositeExplicitAutograd")
_LIBRARY.impl("select_at", select_at, "CompositeExplicitAutograd")
_LIBRARY.impl("unravel_positions", unravel_positions, "CompositeExplicitAutograd")
