"""Decomposes ``unfold`` and ``fold`` of images without index tensors: strided windows, sums of slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes

MOST = 16  # elements of a patch that are added one by one
Sizes = Sequence[int]


def patches_as_windows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``aten.im2col``. ``rule`` raises the errors."""

    def decomposition(x: torch.Tensor, window: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
        original = x, window, dilation, padding, stride
        if has_unbacked_sizes(x) or x.dim() not in (3, 4) or not _is_valid(window, dilation, padding, stride):
            return rule(*original)
        reach = [far * (size - 1) + 1 for size, far in zip(window, dilation)]
        starts = _starts(x.shape[-2:], window, dilation, padding, stride)
        if not (all(size > 0 for size in x.shape[-3:]) and all(size > 0 for size in starts)):
            return rule(*original)
        images = x if x.dim() == 4 else x[None]
        found = torch.constant_pad_nd(images, [padding[1], padding[1], padding[0], padding[0]])
        for dim, size, step in zip((2, 3), reach, stride):
            found = found.unfold(dim, size, step)
        found = found[..., :: dilation[0], :: dilation[1]].permute(0, 1, 4, 5, 2, 3)
        found = found.reshape(images.shape[0], images.shape[1] * math.prod(window), math.prod(starts))
        return found if x.dim() == 4 else found[0]

    return decomposition


def sums_of_slices(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``aten.col2im``, for patches that start at each index, or do not overlap."""

    def decomposition(
        x: torch.Tensor, output_size: Sizes, window: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
    ) -> Any:
        original = x, output_size, window, dilation, padding, stride
        valid = len(output_size) == 2 and _is_valid(window, dilation, padding, stride)
        if has_unbacked_sizes(x) or x.dim() not in (2, 3) or not valid or not x.is_floating_point():
            return rule(*original)
        dense = all(step == 1 for step in stride) and math.prod(window) <= MOST
        apart = all(size == 1 or far == 1 and size <= step for size, far, step in zip(window, dilation, stride))
        starts = _starts(output_size, window, dilation, padding, stride)
        fits = x.shape[-2] % math.prod(window) == 0 and x.shape[-1] == math.prod(starts)
        sized = all(size > 0 for size in (*x.shape[-2:], *output_size, *starts))
        if not (dense or apart) or not fits or not sized:
            return rule(*original)
        columns = x if x.dim() == 3 else x[None]
        parts = columns.reshape(columns.shape[0], columns.shape[1] // math.prod(window), *window, *starts)
        if apart:
            found = _side_by_side(parts, output_size, padding, stride)
        else:
            found = _added(parts, output_size, dilation, padding)
        return found if x.dim() == 3 else found[0]

    return decomposition


def _is_valid(window: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> bool:
    if any(len(sizes) != 2 for sizes in (window, dilation, padding, stride)):
        return False
    if any(not isinstance(size, int) for size in (*window, *dilation, *stride)):
        return False
    return all(size > 0 for size in (*window, *dilation, *stride)) and all(pad >= 0 for pad in padding)


def _starts(sizes: Sizes, window: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> list[int]:
    """The number of patches along each dim."""
    return [
        1 + (size + 2 * pad - far * (patch - 1) - 1) // step
        for size, patch, far, pad, step in zip(sizes, window, dilation, padding, stride)
    ]


def _side_by_side(parts: torch.Tensor, output_size: Sizes, padding: Sizes, stride: Sizes) -> torch.Tensor:
    """Patches that do not overlap, with zeros between them; ``parts``: images, channels, patch, starts."""
    gaps = [step - size for step, size in zip(stride, parts.shape[2:4])]
    spread = torch.constant_pad_nd(parts.permute(0, 1, 4, 2, 5, 3), [0, gaps[1], 0, 0, 0, gaps[0], 0, 0])
    lengths = [start * step for start, step in zip(parts.shape[4:], stride)]
    whole = spread.reshape(*parts.shape[:2], *lengths)
    rest = [size + pad - length for size, pad, length in zip(output_size, padding, lengths)]
    return torch.constant_pad_nd(whole, [-padding[1], rest[1], -padding[0], rest[0]])


def _added(parts: torch.Tensor, output_size: Sizes, dilation: Sizes, padding: Sizes) -> torch.Tensor:
    """Adds, for each element of a patch, its values in all patches at once, shifted by its position; in eager mode's
    order."""
    wide = parts.float() if parts.dtype in (torch.float16, torch.bfloat16) else parts
    total: Any = None
    for offsets in itertools.product(*map(range, parts.shape[2:4])):
        pads: list[Any] = []
        for dim in (1, 0):
            before = offsets[dim] * dilation[dim] - padding[dim]
            pads += [before, output_size[dim] - parts.shape[4 + dim] - before]
        part = torch.constant_pad_nd(wide[:, :, offsets[0], offsets[1]], pads)
        total = part if total is None else total + part
    return total.to(parts.dtype)
