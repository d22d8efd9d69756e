"""softmax and log_softmax along a dim in which there may be nothing.

Eager mode's softmax of nothing is nothing, while ``amax`` refuses to take the largest of nothing: PyTorch's
decompositions (``_softmax_unbacked_safe_amax``) make it a guard that there is something, or put -inf behind each row.
Here it is the ``amax`` of ``torch._prims``, which asks for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., Any]


@functools.cache
def softmax_of_maybe_nothing(rule: Rule) -> Rule:
    """The decomposition of ``aten._softmax``."""

    def decomposition(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _may_be_nothing(x, dim):
            return rule(x, dim, half_to_float)
        shifted = _shifted(x, dim)
        powers = torch.exp(shifted)
        return _as_result(powers / torch.sum(powers, dim, keepdim=True), x, half_to_float)

    return decomposition


@functools.cache
def log_softmax_of_maybe_nothing(rule: Rule) -> Rule:
    """The decomposition of ``aten._log_softmax``."""

    def decomposition(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _may_be_nothing(x, dim):
            return rule(x, dim, half_to_float)
        shifted = _shifted(x, dim)
        return _as_result(shifted - torch.log(torch.sum(torch.exp(shifted), dim, keepdim=True)), x, half_to_float)

    return decomposition


def _may_be_nothing(x: torch.Tensor, dim: int) -> bool:
    return isinstance(x.shape[dim] if x.dim() else 1, torch.SymInt)


def _shifted(x: torch.Tensor, dim: int) -> torch.Tensor:
    """``x`` less the largest of its row, contiguous, computed in float32 where the type is a shorter one."""
    x = x.contiguous()
    x = x.float() if x.dtype in (torch.half, torch.bfloat16) else x
    dim = dim % x.dim()
    largest: torch.Tensor = torch.ops.prims.amax.default(x, [dim])
    return x - largest.unsqueeze(dim)


def _as_result(found: torch.Tensor, x: torch.Tensor, half_to_float: bool) -> torch.Tensor:
    return found if half_to_float else found.to(x.dtype)
