"""Decomposes grid sampling and its gradient: gathers and scatters along flattened dims.

On CPUs float32 and float64 stay calls of ATen, in a half to a fifth of the time
(docs/decisions.md, "Which operators are decomposed, and which are library calls").

Each result is a sum over taps: one element of the source for each way to choose a neighbour along every dim, times the
product of the neighbours' weights. The formulas are those of ATen's ``GridSampler.h``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
CUBIC = -0.75  # of the cubic convolution


@dataclass(frozen=True)
class Position:
    """Along one dim, (N, 1, points). Which elements are next to it is decided as eager mode rounds it; weights are of
    the exact one (float64 on CPUs), since a weight has the rounding errors of a position, which is a large number."""

    rounded: Tensor
    exact: Tensor


@dataclass(frozen=True)
class Neighbour:
    """A neighbour along one dim: its position (a float, (N, 1, points)), its weight, and the derivative of the weight
    by the position."""

    position: Tensor
    weight: Tensor
    slope: Tensor


@dataclass(frozen=True)
class Tap:
    """One element of the source per point: its index in the flattened source, whether it is inside, and weights of all
    dims."""

    index: Tensor
    inside: Tensor
    neighbours: tuple[Neighbour, ...]

    def weight(self, derived: int = -1) -> Tensor:
        """The product over all dims, of dim ``derived`` the slope."""
        parts = [n.slope if i == derived else n.weight for i, n in enumerate(self.neighbours)]
        return math.prod(parts[1:], start=parts[0])


def grid_sampler(
    x: Tensor, grid: Tensor, mode: int = BILINEAR, padding: int = ZEROS, align_corners: bool = False
) -> Tensor:
    """`sampled_in_parts`, or NotImplemented where ATen's call is faster."""
    return NotImplemented if is_a_call(x) else sampled_in_parts(x, grid, mode, padding, align_corners)


def grid_sampler_backward(
    gradient: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool, output_mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor]:
    """`gradients_in_parts`, or NotImplemented where ATen's call is faster."""
    if is_a_call(x):
        return NotImplemented
    return gradients_in_parts(gradient, x, grid, mode, padding, align_corners, output_mask)


def is_a_call(x: Tensor) -> bool:
    """Whether ATen's own code is called."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def sampled_in_parts(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """``x`` (N, C, [D,] H, W) at ``grid`` (N, [oD,] oH, oW, 2 or 3), in which x is first: (N, C, [oD,] oH, oW)."""
    wide = x.to(_compute_type(x.dtype))
    taps, _ = _taps(wide, grid.to(wide.dtype), mode, padding, align_corners)
    values = [_read(wide, tap) * tap.weight() for tap in taps]
    total: Tensor = sum(values[1:], start=values[0])
    return total.view(*x.shape[:2], *grid.shape[1:-1]).to(x.dtype)


def gradients_in_parts(
    gradient: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool, output_mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor]:
    """Gradients by ``x`` (None if not requested) and by ``grid``."""
    wide = x.to(_compute_type(x.dtype))
    taps, slopes = _taps(wide, grid.to(wide.dtype), mode, padding, align_corners)
    channels, points = x.size(1), math.prod(grid.shape[1:-1])
    given = gradient.to(wide.dtype).reshape(x.size(0), channels, points)
    by_x = None
    if output_mask[0]:
        total = torch.zeros_like(_flat(wide), dtype=_exact_type(x), memory_format=torch.contiguous_format)
        for tap in taps:
            written = torch.where(tap.inside, given * tap.weight(), 0).to(total.dtype)
            total = total.scatter_add(2, tap.index.expand(-1, channels, -1), written)
        by_x = total.view(x.shape).to(x.dtype)
    if mode == NEAREST:
        return by_x, torch.zeros_like(grid, memory_format=torch.contiguous_format)
    read = [_read(wide, tap) for tap in taps]
    found = []
    for dim, slope in enumerate(slopes):
        parts = [value * tap.weight(dim) for value, tap in zip(read, taps)]
        found.append((given * sum(parts[1:], start=parts[0])).sum(1) * slope.squeeze(1))
    return by_x, torch.stack(found, -1).view(grid.shape).to(grid.dtype)


def _compute_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _exact_type(x: Tensor) -> torch.dtype:
    """The type of positions, and of sums of many elements at the border of a source."""
    return torch.float64 if x.device.type == "cpu" else _compute_type(x.dtype)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _read(x: Tensor, tap: Tap) -> Tensor:
    """(N, C, points); 0 where there is no element."""
    values = _flat(x).gather(2, tap.index.expand(-1, x.size(1), -1))
    return torch.where(tap.inside, values, 0)


def _taps(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> tuple[list[Tap], list[Tensor]]:
    """Taps, and for each coordinate of the grid the derivative of its position."""
    sizes = x.shape[:1:-1]  # as the grid's coordinates: x first
    points = grid.reshape(grid.size(0), 1, math.prod(grid.shape[1:-1]), len(sizes))
    around, slopes = [], []
    for i, size in enumerate(sizes):
        position, slope = _unnormalised(points[..., i], size, align)
        if mode != BICUBIC:
            position, more = _padded(position, size, padding, align)
            slope = slope * more
        around.append(list(_neighbours(position, size, mode, padding, align)))
        slopes.append(slope)
    return [_tap(one, sizes) for one in itertools.product(*around)], slopes


def _tap(neighbours: tuple[Neighbour, ...], sizes: Sequence[int]) -> Tap:
    checks = [(n.position >= 0) & (n.position < size) for n, size in zip(neighbours, sizes)]
    inside = math.prod(checks[1:], start=checks[0])
    index = torch.zeros_like(neighbours[0].position, dtype=torch.int64)
    for n, size in reversed(list(zip(neighbours, sizes))):
        index = index * size + torch.where(inside, n.position, 0).to(torch.int64)
    return Tap(index, inside, neighbours)


def _neighbours(position: Position, size: int, mode: int, padding: int, align: bool) -> Iterator[Neighbour]:
    rounded, exact = position.rounded, position.exact
    dtype, one, first = rounded.dtype, torch.ones_like(rounded), rounded.floor()
    if mode == NEAREST:
        yield Neighbour(rounded.round(), one, torch.zeros_like(one))
    elif mode == BILINEAR:
        yield Neighbour(first, (first + 1 - exact).to(dtype), -one)
        yield Neighbour(first + 1, (exact - first).to(dtype), one)
    else:
        t = exact - first
        for i in range(4):
            at = _padded(Position(first + (i - 1), first + (i - 1)), size, padding, align)[0].rounded
            weight, slope = _cubic(t - (i - 1))
            yield Neighbour(at, weight.to(dtype), slope.to(dtype))


def _cubic(distance: Tensor) -> tuple[Tensor, Tensor]:
    """The weight of an element at a distance of up to 2, and its derivative."""
    d, a = distance.abs(), CUBIC
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    by_near, by_far = (3 * (a + 2) * d - 2 * (a + 3)) * d, (3 * a * d - 10 * a) * d + 8 * a
    slope = torch.where(d <= 1, by_near, by_far)
    return torch.where(d <= 1, near, far), torch.where(distance < 0, -slope, slope)


def _unnormalised(coordinate: Tensor, size: int, align: bool) -> tuple[Position, Tensor]:
    """The position for a coordinate in [-1, 1], and its derivative. Rounded after each step, as in eager mode."""
    dtype, wide = coordinate.dtype, _exact_type(coordinate)
    scale, shift = (size - 1) / 2 if align else size / 2, 0.0 if align else 0.5
    exact = coordinate.to(wide) + 1
    rounded = (exact.to(dtype).to(wide) * scale).to(dtype).to(wide) - shift
    return Position(rounded.to(dtype), exact * scale - shift), torch.full_like(coordinate, scale)


def _padded(position: Position, size: int, padding: int, align: bool) -> tuple[Position, Tensor]:
    """The position that replaces one outside of the source, and the derivative of that mapping."""
    rounded, exact = position.rounded, position.exact
    slope = torch.ones_like(rounded)
    if padding == ZEROS:
        return position, slope
    if padding == REFLECTION:
        low, span = (0.0, size - 1) if align else (-0.5, size)
        if span == 0:
            nothing = torch.zeros_like(rounded)
            return Position(nothing, nothing), nothing
        below, turns = rounded < low, ((rounded - low).abs() / span).floor()
        even = torch.fmod(turns, 2) == 0
        slope = torch.where(below == even, -1.0, 1.0).to(slope.dtype)
        rounded, exact = (_reflected(one, low, span, below, turns, even) for one in (rounded, exact))
    inside = (rounded > 0) & (rounded < size - 1)
    clamped = Position(rounded.clamp(0, size - 1), exact.clamp(0, size - 1))
    return clamped, torch.where(inside, slope, 0)


def _reflected(position: Tensor, low: float, span: float, below: Tensor, turns: Tensor, even: Tensor) -> Tensor:
    """``turns``: how often the way from ``low`` to the position turns round between the ends."""
    rest = torch.where(below, low - position, position - low) - turns * span
    return torch.where(even, rest, span - rest) + low
