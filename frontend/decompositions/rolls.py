"""``roll`` of what may be nothing. PyTorch's decomposition divides by a size, and asks first whether it is 0."""

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
def roll_of_maybe_nothing(rule: Rule) -> Rule:
    """The decomposition of ``aten.roll``."""

    def decomposition(x: torch.Tensor, shifts: Ints, dims: Ints = ()) -> Any:
        shifts, dims = _listed(shifts), _listed(dims)
        if not _is_asked(x, shifts, dims):
            return rule(x, shifts, dims)
        if not dims:
            return _rolled(x.flatten(), shifts[0], 0).view(x.shape)
        for shift, dim in zip(shifts, dims):
            x = _rolled(x, shift, dim)
        return x

    return decomposition


@functools.cache
def roll_sizes(rule: Rule) -> Rule:
    """The rule for the result."""

    def sizes(x: torch.Tensor, shifts: Ints, dims: Ints = ()) -> Any:
        if not _is_asked(x, _listed(shifts), _listed(dims)):
            return rule(x, shifts, dims)
        return empty_rolled(x, _listed(shifts), _listed(dims))

    return sizes


def _listed(numbers: Ints) -> list[Any]:
    return list(numbers) if isinstance(numbers, Sequence) else [numbers]


def _is_asked(x: torch.Tensor, shifts: list[Any], dims: list[Any]) -> bool:
    """Whether the usual rule would ask; not of arguments that it refuses."""
    is_valid = len(shifts) == len(dims) > 0 or (len(shifts), len(dims)) == (1, 0)
    is_valid = is_valid and all(-x.dim() <= dim < x.dim() for dim in dims)
    return is_valid and any(map(is_general, x.shape))


def _rolled(x: torch.Tensor, shift: Any, dim: int) -> torch.Tensor:
    size = x.shape[dim]
    start = (size - shift) % _torch.sym_max(size, 1)
    return x.index_select(dim, torch.fmod(start + torch.arange(size, device=x.device), size))
