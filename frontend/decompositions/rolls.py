"""Decomposes ``roll`` of a tensor that may be empty: two slices.

PyTorch's decomposition divides by a size, and guards on that being 0. It also gathers by a remainder, a division that
takes five times as long as two copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.decompositions.eager_layouts import empty_rolled

Rule = Callable[..., Any]
Ints = Any  # int | torch.SymInt, or a sequence of them
_torch: Any = torch  # these have no types


@functools.cache
def roll_of_empty_dims(rule: Rule) -> Rule:
    """The decomposition of ``aten.roll``."""

    def decomposition(x: torch.Tensor, shifts: Ints, dims: Ints = ()) -> Any:
        shifts, dims = _listed(shifts), _listed(dims)
        if not _is_valid(x, shifts, dims):
            return rule(x, shifts, dims)
        if not dims:
            return _rolled(x.flatten(), shifts[0], 0).view(x.shape)
        for shift, dim in zip(shifts, dims):
            x = _rolled(x, shift, dim)
        return x

    return decomposition


@functools.cache
def roll_sizes(rule: Rule) -> Rule:
    """The fake rule of ``aten.roll``: of general sizes eager mode's layout, without PyTorch's guards."""

    def sizes(x: torch.Tensor, shifts: Ints, dims: Ints = ()) -> Any:
        listed = _listed(shifts), _listed(dims)
        if not _is_valid(x, *listed) or not any(map(is_general, x.shape)):
            return rule(x, shifts, dims)
        return empty_rolled(x, *listed)

    return sizes


def _listed(numbers: Ints) -> list[Any]:
    return list(numbers) if isinstance(numbers, Sequence) else [numbers]


def _is_valid(x: torch.Tensor, shifts: list[Any], dims: list[Any]) -> bool:
    """Whether the usual rule takes these arguments."""
    fit = len(shifts) == len(dims) > 0 or (len(shifts), len(dims)) == (1, 0)
    return fit and all(-x.dim() <= dim < x.dim() for dim in dims)


def _rolled(x: torch.Tensor, shift: Any, dim: int) -> torch.Tensor:
    size = x.shape[dim]
    start = (size - shift) % _torch.sym_max(size, 1)
    if not isinstance(start, int) and not is_general(start):  # Dynamo's environment would ask whether a slice is empty
        index = start + torch.arange(size, device=x.device)
        return x.index_select(dim, torch.where(index < size, index, index - size))
    return torch.cat([x.narrow(dim, start, size - start), x.narrow(dim, 0, start)], dim)
