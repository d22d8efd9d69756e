"""Averages over windows in parts, where their parts have kernels that are not slower than the whole operator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from symshape.frontend.bridge.layouts import memory_format_of
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes

MOST = 16  # elements of a window that is read element by element


def avg_pool(
    x: torch.Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``avg_pool2d`` and ``avg_pool3d`` of small windows, one at each index: a sum of slices. ``window`` has a size for
    each of the last dims."""
    moves = [*stride] or [*window]
    if (
        has_unbacked_sizes(x)
        or not x.is_floating_point()
        or math.prod(window) > MOST
        or len(window) == 1
        or any(one != 1 for one in moves)
        or any(padding)
        or ceil_mode
        or divisor_override
    ):
        return NotImplemented
    first = x.dim() - len(window)
    sizes = [x.size(first + i) - size + 1 for i, size in enumerate(window)]
    total: Any = 0
    for offsets in itertools.product(*map(range, window)):
        part = x
        for i, (offset, size) in enumerate(zip(offsets, sizes)):
            part = part.narrow(first + i, offset, size) if window[i] > 1 else part
        total = total + part
    return _laid_out(total / math.prod(window), x)


def avg_pool_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Each element of ``x`` is in the windows at its index and before it: the same sum, over a padded gradient."""
    pads = [pad for size in reversed(window) for pad in (size - 1, size - 1)]
    padded = torch.constant_pad_nd(gradient, pads)
    return avg_pool(padded, window, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _laid_out(result: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    """Channels-last where the operand is."""
    if operand.dim() not in (4, 5):
        return result.contiguous()
    return result.contiguous(memory_format=memory_format_of(operand))
