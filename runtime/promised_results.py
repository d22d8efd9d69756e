"""Brings results of library calls to the layout of their fake values, which generated code relies on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from symshape.errors import ShapeConstraintError, rule_to_register, with_text
from symshape.runtime.torch_c import declaration_of, has_fake_rule


def with_layout(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """The tensor with these strides: itself where they agree in every dim that is longer than 1, else a copy."""
    actual = tensor.stride()
    if actual == strides or all(a == s or n <= 1 for a, s, n in zip(actual, strides, sizes)):
        return tensor
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def promised(
    result: torch.Tensor,
    sizes: Sequence[int | None],
    strides: Sequence[int] | str | None,
    dtype: torch.dtype,
    target: str,
    line: str,
) -> torch.Tensor:
    """The result of a custom operator, in the layout of its fake result, on which generated code relies.

    ``sizes``: None for an unbacked one; ``strides``: None for contiguous, "any" for no requirement; ``line``: the
    user's. ShapeConstraintError if it has other sizes or another type.
    """
    shape = result.shape
    if result.dtype is not dtype or (shape != sizes and not _fits(shape, sizes)):
        raise _broken(result, sizes, dtype, target, line)
    result = result.resolve_neg()  # a fake rule says nothing of it
    if strides is None:
        return result.contiguous()
    return result if isinstance(strides, str) else with_layout(result, shape, strides)


def _fits(shape: Sequence[int], sizes: Sequence[int | None]) -> bool:
    return len(shape) == len(sizes) and all(wanted in (None, size) for wanted, size in zip(sizes, shape))


def _broken(
    result: torch.Tensor, sizes: Sequence[int | None], dtype: torch.dtype, target: str, line: str
) -> ShapeConstraintError:
    op: Any = functools.reduce(getattr, target.removeprefix("flat.").split("."), torch.ops)
    registered = has_fake_rule(op)
    said = "its fake rule says" if registered else "was found by running it on small inputs"
    code = rule_to_register(
        *declaration_of(op), "...  # torch.library.get_ctx().new_dynamic_size() for a size in the data"
    )
    wanted = f"{['?' if size is None else size for size in sizes]} ({dtype})"
    return ShapeConstraintError(
        f"{target} returned a tensor of sizes {list(result.shape)} ({result.dtype}); {said} {wanted}",
        where=with_text(line),
        next_step="correct the fake rule" if registered else code,
        constraint=f"{target} returns {wanted}",
    )
