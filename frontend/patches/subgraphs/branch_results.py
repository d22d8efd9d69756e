"""Merges the results of the two branches of a ``cond``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import make_contiguous_strides_for
from torch.fx.experimental.symbolic_shapes import SymIntEqByExpr

from symshape.frontend.patches.patch import Changes


def results_of_branches_are_merged(changes: Changes) -> None:
    """Merges contiguous results to a contiguous one, without comparing strides, as PyTorch's rule does."""
    # Imported by name: the attribute of its package is the function.
    changes.wrap(importlib.import_module("torch._higher_order_ops.cond"), "_merge_output", _merged)


def _merged(original: Callable[..., Any]) -> Callable[..., Any]:
    def merged(a: Any, b: Any, mode: Any) -> Any:
        both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() == b.dim() and a.dim() > 0
        if not both or not (_is_packed(a) and _is_packed(b)):
            return original(a, b, mode)
        with mode:  # each size is merged by PyTorch's rule
            sizes = [original(a.new_empty((m,)), b.new_empty((n,)), mode).size(0) for m, n in zip(a.size(), b.size())]
            return a.new_empty(sizes)

    return merged


def _is_packed(tensor: torch.Tensor) -> bool:
    """Whether the strides equal those of a new contiguous tensor, compared as expressions."""
    wanted = make_contiguous_strides_for(tensor.size())
    starts_at_0 = isinstance(offset := tensor.storage_offset(), int) and offset == 0
    return (
        starts_at_0
        and tensor.layout == torch.strided
        and all(SymIntEqByExpr(x) == SymIntEqByExpr(y) for x, y in zip(tensor.stride(), wanted))
    )
