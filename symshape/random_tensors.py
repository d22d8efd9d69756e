"""Random tensors of a given layout, where a graph's own inputs are not available."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

SIZE_WITHOUT_HINT: Final = 3  # of a symbol whose value no call has shown


@dataclass(frozen=True)
class Draw:
    """The distribution: integers from 0 to ``integers - 1`` (0 and 1 are valid indices wherever a dim has two
    elements); floats from a normal distribution times ``scale``, or, ``positive``, from 0.5 to 1.5."""

    integers: int = 2
    positive: bool = False
    scale: float = 1.0


def strided_tensor(
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
    dtype: torch.dtype,
    generator: torch.Generator,
    draw: Draw = Draw(),
) -> torch.Tensor:
    """A tensor with this layout, as a view of just enough memory."""
    return random_values(offset + extent(sizes, strides), dtype, generator, draw).as_strided(sizes, strides, offset)


def extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements of memory that a tensor spans."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if 0 not in sizes else 0


def random_values(count: int, dtype: torch.dtype, generator: torch.Generator, draw: Draw = Draw()) -> torch.Tensor:
    """A flat tensor."""
    if dtype.is_floating_point or dtype.is_complex:
        if draw.positive:
            return (torch.rand(count, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return (torch.randn(count, generator=generator, dtype=wide) * draw.scale).to(dtype)
    high = 2 if dtype is torch.bool else draw.integers
    return torch.randint(0, high, (count,), generator=generator).to(dtype)
