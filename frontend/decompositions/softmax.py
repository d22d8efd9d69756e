"""Decomposes softmax, log_softmax and logsumexp along a dim that may be empty.

Eager mode's softmax of an empty tensor is empty, while ``amax`` raises an error for one: PyTorch's decompositions
(``_softmax_unbacked_safe_amax``) guard that it is not empty, or append -inf to each row. Here it is the ``amax`` of
``torch._prims``, which does not check.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Rule = Callable[..., Any]


@functools.cache
def softmax_of_empty_dims(rule: Rule) -> Rule:
    """The decomposition of ``aten._softmax``."""

    def decomposition(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _may_be_empty(x, dim):
            return rule(x, dim, half_to_float)
        shifted = _shifted(x, dim)
        powers = torch.exp(shifted)
        return _as_result(powers / torch.sum(powers, dim, keepdim=True), x, half_to_float)

    return decomposition


@functools.cache
def log_softmax_of_empty_dims(rule: Rule) -> Rule:
    """The decomposition of ``aten._log_softmax``."""

    def decomposition(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        if not _may_be_empty(x, dim):
            return rule(x, dim, half_to_float)
        shifted = _shifted(x, dim)
        return _as_result(shifted - torch.log(torch.sum(torch.exp(shifted), dim, keepdim=True)), x, half_to_float)

    return decomposition


@functools.cache
def logsumexp_of_empty_dims(rule: Rule) -> Rule:
    """The decomposition of ``aten.logsumexp``, which guards on emptiness. Of no element it is -inf."""

    def decomposition(x: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
        if x.is_complex() or not any(isinstance(size, torch.SymInt) for size in x.shape):
            return rule(x, dim, keepdim)
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        x = x.to(torch.float32 if dtype in (torch.half, torch.bfloat16) else dtype)
        dims = [d % x.dim() for d in dim] or list(range(x.dim()))
        largest: torch.Tensor = torch.ops.prims.amax.default(x, dims)
        largest = torch.where(largest.abs() == math.inf, 0, largest)
        found = torch.sum(torch.exp(x - _with_dims(largest, dims)), dims).log() + largest
        return (_with_dims(found, dims) if keepdim else found).to(dtype)

    return decomposition


def _with_dims(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """The result of a reduction with its reduced dims as dims of size 1."""
    for dim in sorted(dims):
        x = x.unsqueeze(dim)
    return x


def _may_be_empty(x: torch.Tensor, dim: int) -> bool:
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
