"""The type of a result made of several tensors, by eager mode's rule."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch


def result_type(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Tensors with dims decide; scalars count where their kind of number is a higher one (``at::result_type``, without
    its rule for Python's numbers). ``torch.result_type`` takes two tensors only."""
    dims, scalars = ([x.dtype for x in tensors if (x.dim() > 0) is with_dims] for with_dims in (True, False))
    if not dims or not scalars:
        return functools.reduce(torch.promote_types, dims or scalars)
    higher, lower = (functools.reduce(torch.promote_types, types) for types in (dims, scalars))
    if _kind(lower) <= _kind(higher):
        return higher
    return higher.to_complex() if higher.is_floating_point else torch.promote_types(higher, lower)


def _kind(dtype: torch.dtype) -> int:
    """Bool, integers, floats, complex numbers."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)
