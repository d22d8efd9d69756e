"""Decomposes ``isin`` with few test elements: one comparison for each.

PyTorch's decomposition compares numbers of elements to choose between that and sorting, which makes a graph for each
side and a guard that is no condition over integers.
"""

from __future__ import annotations

from typing import Any

import torch

# Eager mode compares up to 10 * n**0.145 elements (aten/src/ATen/native/TensorCompare.cpp): for any n at least so many.
_COMPARED = 10


def isin(
    elements: torch.Tensor, test_elements: torch.Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Any:
    """A tensor of bool, of the sizes of ``elements``. For more test elements, or an unknown number, the operator stays
    a call, which chooses when it runs."""
    count = test_elements.numel()
    if not isinstance(count, int) or count >= _COMPARED:
        return NotImplemented
    each = test_elements.reshape(count)
    found = (elements.unsqueeze(-1) == each).any(-1)
    return ~found if invert else found
