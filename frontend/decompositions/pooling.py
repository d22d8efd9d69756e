"""Decomposes average and max pooling where kernels of the decomposition are not slower than the library call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from symshape.frontend.bridge.layouts import memory_format_of
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes

MOST = 16  # elements of a window that is read element by element


def max_pool(
    x: torch.Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """``max_pool2d_with_indices`` with small windows on CPUs: the elements of a window one by one, in eager mode's
    order. Of equal elements the first is returned, NaN is the maximum. Unused indices are dead code."""
    window, padding, dilation = (_of_each_dim(sizes, 2) for sizes in (window, padding, dilation))
    stride = _of_each_dim(stride, 2) if stride else window
    if x.device.type != "cpu" or ceil_mode or not _is_small(x, window, stride, padding, dilation):
        return NotImplemented
    if any(2 * pad > size for pad, size in zip(padding, window)):
        return NotImplemented
    parts = _windows(x, window, stride, padding, dilation, -math.inf)
    width, (rows, columns) = x.shape[-1], parts.shape[x.dim() - 2 : x.dim()]
    places = [  # no channel has 2**31 elements
        torch.arange(count, dtype=torch.int32, device=x.device) * step - pad
        for count, step, pad in zip((rows, columns), stride, padding)
    ]
    first = [torch.where(place < 0, place % far, place) for place, far in zip(places, dilation)]
    best: Any = -math.inf
    index = (first[0] * width)[:, None] + first[1]
    for i, j in itertools.product(*map(range, window)):
        part = parts[..., i * dilation[0], j * dilation[1]]
        better = (part > best) | part.isnan()
        here = ((places[0] + i * dilation[0]) * width)[:, None] + (places[1] + j * dilation[1])
        best, index = torch.where(better, part, best), torch.where(better, here, index)
    return _laid_out(best, x), _laid_out(index.long(), x)


def global_max_pool(x: torch.Tensor, dims: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The maximum over the last ``dims`` dims, kept, and its index in them. Of equal elements the first is named, of
    NaN the last."""
    check: Any = torch._check
    for i, size in enumerate(x.shape[1:], 1):
        check(
            size > 0,
            lambda i=i: (
                f"adaptive_max_pool{dims}d(): Expected input to have non-zero size for non-batch dimensions, "
                f"but input has sizes {x.shape} with dimension {i} being empty"
            ),
        )
    last = tuple(range(-dims, 0))
    flat = x.flatten(-dims)
    index = flat.argmax(-1)
    if x.is_floating_point():
        nans = torch.where(flat.isnan(), torch.arange(flat.shape[-1], device=x.device), -1).amax(-1)
        index = torch.where(nans < 0, index, nans)
    return x.amax(last, keepdim=True), index.reshape([*index.shape, *[1] * dims])


def _is_dense(stride: Sequence[int], padding: Sequence[int]) -> bool:
    return all(one == 1 for one in stride) and not any(padding)


def _of_each_dim(sizes: Sequence[int], count: int) -> Sequence[int]:
    return [*sizes] * count if len(sizes) == 1 else sizes


def _is_small(x: torch.Tensor, window: Sequence[int], *others: Sequence[int]) -> bool:
    """Whether windows are read element by element, and there are some. Sizes that are refused are not."""
    numbers = [*window, *(number for sizes in others for number in sizes)]
    if has_unbacked_sizes(x) or not x.is_floating_point() or any(type(number) is not int for number in numbers):
        return False
    if x.dim() not in (len(window) + 1, len(window) + 2) or math.prod(window) > MOST or min(numbers) < 0:
        return False
    stride, padding, dilation = others
    if min(*window, *stride, *dilation) < 1 or not all(size > 0 for size in x.shape[1 - x.dim() :]):
        return False
    sides = zip(x.shape[x.dim() - len(window) :], window, padding, dilation)
    return all(size + 2 * pad - far * (one - 1) > 0 for size, one, pad, far in sides)


def _windows(
    x: torch.Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    outside: float,
) -> torch.Tensor:
    """A view of the padded tensor: the dims of windows, then those inside of a window."""
    first = x.dim() - len(window)
    if any(padding):
        x = torch.constant_pad_nd(x, [pad for size in reversed(padding) for pad in (size, size)], outside)
    for i, (size, step, far) in enumerate(zip(window, stride, dilation)):
        x = x.unfold(first + i, far * (size - 1) + 1, step)
    return x


def avg_pool(
    x: torch.Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``avg_pool2d`` and ``avg_pool3d`` of small windows: a sum of slices. ``window`` has a size for each of the last
    dims. On GPUs those alone that have a window at each index."""
    count = len(window)
    moves, pads = _of_each_dim([*stride] or [*window], count), _of_each_dim(padding, count)
    if count == 1 or ceil_mode or divisor_override or not (_is_dense(moves, pads) or x.device.type == "cpu"):
        return NotImplemented
    if any(pads) and not count_include_pad or any(2 * pad > size for pad, size in zip(pads, window)):
        return NotImplemented
    if not _is_small(x, window, moves, pads, [1] * count):
        return NotImplemented
    parts = _windows(x, window, moves, pads, [1] * count, 0.0)
    total: Any = 0
    for offsets in itertools.product(*map(range, window)):
        total = total + parts[(slice(None),) * x.dim() + offsets]
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
    """If windows start at each index, an element of ``x`` is in those that start at its index and before it: the same
    pooling, of a padded gradient."""
    if not _is_dense([*stride] or window, padding):
        return NotImplemented
    pads = [pad for size in reversed(window) for pad in (size - 1, size - 1)]
    padded = torch.constant_pad_nd(gradient, pads)
    return avg_pool(padded, window, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _laid_out(result: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    """Channels-last where the operand is."""
    if operand.dim() not in (4, 5):
        return result.contiguous()
    return result.contiguous(memory_format=memory_format_of(operand))
