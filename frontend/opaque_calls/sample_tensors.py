"""Sample data of several kinds for the operands of an operator.

One kind is likely to be accepted by the operator, and results with data-dependent sizes differ between kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from symshape.frontend.opaque_calls.operator_samples import Operand

Fill = Callable[[Sequence[int], torch.Generator], torch.Tensor]
# Sizes that operators are run with, the likeliest to be accepted first.
USUAL_SIZES = (4, 6, 8, 3, 5, 12, 16, 2, 32)
MOST_ELEMENTS = 1 << 20  # of all operands of a run together
_LARGEST_STORAGE = 1 << 21


def _zeros(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.zeros(shape)


def _ones(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.ones(shape)


def _unit(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator)


def _signed(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator) * 3


def _ordered(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def _few(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 3, shape, generator=generator).float()


def _bits(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=generator).float()


def _identity(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """The identity matrix in the last two dims: for operators that factor or invert."""
    if len(shape) < 2:
        return torch.ones(shape)
    return torch.eye(shape[-2], shape[-1]).expand(shape) * 2


# (of floating-point tensors, of integers, of booleans): integers are often indices, and 0 is one.
KINDS: tuple[tuple[Fill, Fill, Fill], ...] = (
    (_unit, _zeros, _bits),
    (_signed, _few, _bits),
    (_zeros, _zeros, _zeros),
    (_ones, _ones, _ones),
    (_ordered, _ordered, _bits),
    (_few, _bits, _ones),
    (_identity, _zeros, _bits),
)


def made_up(
    operand: Operand, values: Mapping[str, int], kind: tuple[Fill, Fill, Fill], generator: torch.Generator
) -> torch.Tensor:
    """A tensor with the operand's type and strides. One that is expanded, or has far more memory than elements, is made
    contiguous."""
    shape = [size.value(values) for size in operand.sizes]
    strides = [stride.value(values) for stride in operand.strides]
    data = kind[_class_of(operand.dtype)](shape, generator)
    spread = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if all(shape) else 0
    if any(s < 0 for s in strides) or spread > _LARGEST_STORAGE:
        strides = list(torch.empty(shape, device="meta").stride())
    if _overlaps(shape, strides):
        return data.to(operand.dtype).to(operand.device)
    made = torch.empty_strided(shape, strides, dtype=operand.dtype, device=operand.device)
    return made.copy_(data)


def _class_of(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return 2
    return 0 if dtype.is_floating_point or dtype.is_complex else 1


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements may share memory, as those of an expanded tensor do."""
    reached = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape) if size > 1):
        if stride <= reached:
            return True
        reached += (size - 1) * stride
    return False
