"""Gradients of matrix products of nested tensors, without a loop over the rows."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nested._internal.ops import JAGGED_OPS_TABLE

from symshape.frontend.patches.patch import Changes

Tensor = torch.Tensor
_BACKWARD: Any = torch.ops.aten.matmul_backward.default


def gradients_of_values(changes: Changes) -> None:
    """Computes the gradient of the matrix in (rows, ragged, width) @ (width, other) as one product of all values.

    PyTorch computes a matrix for each row and adds them up: a graph for each number of rows.
    """
    original = JAGGED_OPS_TABLE[_BACKWARD]

    def backward(gradient: Any, x: Any, matrix: Any, mask: Any) -> Any:
        if not (_is_ragged_first(gradient) and _is_ragged_first(x)) or matrix.is_nested or matrix.dim() != 2:
            return original(gradient, x, matrix, mask)
        by_x = torch.matmul(gradient, matrix.transpose(0, 1)) if mask[0] else None
        by_matrix = x._values.flatten(0, -2).transpose(0, 1) @ gradient._values.flatten(0, -2) if mask[1] else None
        return by_x, by_matrix

    changes.items(JAGGED_OPS_TABLE, {_BACKWARD: backward})


def _is_ragged_first(x: Any) -> bool:
    """Whether a tensor has shape (rows, ragged, ..., width), without gaps between rows."""
    return isinstance(x, NestedTensor) and x._ragged_idx == 1 and x.dim() >= 3 and x.lengths() is None
