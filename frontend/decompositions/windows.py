"""Decomposes operators of overlapping windows (``x.unfold(0, 3, 1)``) without asking how many windows there are.

Two dims of one stride are ordered by their sizes where a result is laid out, and one window is a view where several are
none: PyTorch's decompositions have a graph for each answer, though their results have the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.symbolic_sizes import known_equal

Size = Any  # int | torch.SymInt


def product_of_windows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``aten.mv``, which multiplies and sums up: the operator itself where the matrix has windows
    of a symbolic number as rows or columns."""

    def decomposition(x: torch.Tensor, vector: torch.Tensor) -> Any:
        are_windows = known_equal(*x.stride()) and any(map(is_general, x.shape))
        return NotImplemented if are_windows else rule(x, vector)

    return decomposition


def gradient_of_windows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``aten.unfold_backward``: elements of windows are added at their positions. ``rule`` raises
    the errors, and has a sum of slices where the sizes are numbers."""

    def decomposition(gradient: torch.Tensor, input_size: Sequence[Size], dim: int, size: int, step: int) -> Any:
        is_usual = gradient.dim() == len(input_size) + 1 > 1 and step > 0 and bool(gradient.size(-1) == size)
        if not is_usual or not any(map(is_general, (*input_size, *gradient.shape))):
            return rule(gradient, input_size, dim, size, step)
        dim = dim % len(input_size)
        first = torch.arange(gradient.size(dim), device=gradient.device) * step
        places = (first[:, None] + torch.arange(size, device=gradient.device)).view(-1)
        parts = gradient.movedim(-1, dim + 1).contiguous()
        sizes = [*parts.shape[:dim], gradient.size(dim) * size, *parts.shape[dim + 2 :]]
        index = [None] * dim + [places]
        zeros = gradient.new_zeros(input_size)
        return torch.ops.aten._unsafe_index_put(zeros, index, parts.view(sizes), accumulate=True)

    return decomposition
