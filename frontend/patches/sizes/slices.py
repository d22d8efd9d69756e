"""The size of a slice that leaves out a fixed number of elements: no guard on the dim being as long."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import fake_impls

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.symbolic_sizes import clamped_size, is_unbacked
from symshape.frontend.patches.patch import Changes

_torch: Any = torch  # it has no types
_SLICE: Any = torch.ops.aten.slice.Tensor


def ends_are_left_out(changes: Changes) -> None:
    """Traces ``x[a:-b]`` with the size ``max(n - a - b, 0)``."""
    rules: Any = fake_impls.op_implementations_dict
    changes.items(rules, {_SLICE: _sizes(rules[_SLICE])})


@functools.cache
def _sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def sizes(
        mode: Any, op: Any, x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
    ) -> torch.Tensor:
        before, behind = _left_out(start, end)
        size: Any = x.size(dim) if x.dim() else 0
        if before + behind <= 0 or type(step) is not int or step < 1 or not is_general(size) or is_unbacked(size):
            result: torch.Tensor = original(mode, op, x, dim, start, end, step)
            return result
        length = (clamped_size(size - before - behind) + step - 1) // step
        shape, strides = list(x.shape), list(x.stride())
        shape[dim], strides[dim] = length, strides[dim] * step
        first = _torch.sym_min(before, size) if before else 0
        return x.as_strided(shape, strides, x.storage_offset() + first * x.stride(dim))

    return sizes


def _left_out(start: Any, end: Any) -> tuple[int, int]:
    """How many elements a slice leaves out at both ends, if these are constants; (0, 0) for any other slice."""
    from_start = start is None or (type(start) is int and start >= 0)
    from_end = end is None or (type(end) is int and (end < 0 or end == sys.maxsize))
    if not from_start or not from_end:
        return 0, 0
    return start or 0, 0 if end is None or end >= 0 else -end
