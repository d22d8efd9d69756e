"""softmax and log_softmax along a dim whose size is in the data: there may be nothing in it.

PyTorch's decompositions before 2.13 take the largest element of each row, which eager mode refuses of nothing, while
its softmax of nothing is nothing. Here, as in PyTorch from 2.13 on (``_softmax_unbacked_safe_amax``), one -inf is put
behind each row first: the largest element stays, and there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import is_unbacked

Rule = Callable[..., Any]


def softmax_of_maybe_nothing(rule: Rule) -> Rule:
    """The decomposition of ``aten._softmax``."""

    def decomposition(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _may_be_nothing(x, dim):
            return rule(x, dim, half_to_float)
        shifted = _shifted(x, dim)
        powers = torch.exp(shifted)
        return _as_result(powers / torch.sum(powers, dim, keepdim=True), x, half_to_float)

    return decomposition


def log_softmax_of_maybe_nothing(rule: Rule) -> Rule:
    """The decomposition of ``aten._log_softmax``."""

    def decomposition(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _may_be_nothing(x, dim):
            return rule(x, dim, half_to_float)
        shifted = _shifted(x, dim)
        return _as_result(shifted - torch.log(torch.sum(torch.exp(shifted), dim, keepdim=True)), x, half_to_float)

    return decomposition


def _may_be_nothing(x: torch.Tensor, dim: int) -> bool:
    size: Any = x.shape[dim] if x.dim() else 1
    return isinstance(size, torch.SymInt) and is_unbacked(size)


def _shifted(x: torch.Tensor, dim: int) -> torch.Tensor:
    """``x`` less the largest of its row, contiguous, computed in float32 where the type is a shorter one."""
    x = x.contiguous()
    x = x.float() if x.dtype in (torch.half, torch.bfloat16) else x
    shape = list(x.shape)
    shape[dim] = 1
    padded = torch.cat((x, x.new_full(shape, float("-inf"))), dim)
    return x - torch.amax(padded, dim, keepdim=True)


def _as_result(found: torch.Tensor, x: torch.Tensor, half_to_float: bool) -> torch.Tensor:
    return found if half_to_float else found.to(x.dtype)
