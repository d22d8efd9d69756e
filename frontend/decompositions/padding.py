"""Decomposes padding. ``constant_pad_nd`` that adds nothing clones its operand with its layout, as eager mode does.

If something is added, the result is contiguous or channels-last, so the layout depends on the amounts. PyTorch's
tracing rules assume that a symbolic amount adds something.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.symbolic_sizes import (
    has_unbacked_sizes,
    holds_here,
    is_unbacked,
    known_equal,
    known_multiple,
)
from symshape.frontend.bridge.tracing_errors import RefusedCall
from symshape.frontend.decompositions.eager_layouts import order_of_clone, order_of_format

Size = Any  # int | torch.SymInt


def constant_pad(x: torch.Tensor, pad: Sequence[Size], value: Any = 0) -> Any:
    """Without positive padding a clone of the remaining part; else the operator stays."""
    return _left(x, pad).clone() if _is_clone(x, pad) else NotImplemented


def constant_pad_sizes(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The tracing rule for an operator that may add nothing, from the one for an operator that adds something."""

    @functools.wraps(rule)
    def sizes(x: torch.Tensor, pad: Sequence[Size], value: Any = 0) -> Any:
        found = cloned_sizes(x, pad)
        return rule(x, pad, value) if found is NotImplemented else found

    return sizes


def cloned_sizes(x: torch.Tensor, pad: Sequence[Size]) -> Any:
    """The result where nothing is added; NotImplemented where something is. That eager mode does not refuse it is a
    guard."""
    for d, first, last in zip(reversed(range(x.dim())), pad[::2], pad[1::2]):
        _require_elements(x.size(d), (first, last))
    return _left(x, pad).clone() if _is_clone(x, pad) else NotImplemented


def _require_elements(size: Size, amounts: Sequence[Size]) -> None:
    """Eager mode takes away at each side before it adds anything. A guard."""
    if not any(map(is_general, (size, *amounts))) or any(map(_is_unbacked, (size, *amounts))):
        return
    left = size
    for amount in amounts:
        left = left + torch.sym_min(amount, 0)  # no guard on the sign
        if left < 0:
            raise RefusedCall("narrow(): length must be non-negative.")


def _is_unbacked(size: Size) -> bool:
    return isinstance(size, torch.SymInt) and is_unbacked(size)


def _is_clone(x: torch.Tensor, pad: Sequence[Size]) -> bool:
    """Whether nothing is added, which is a guard if the layout depends on it. Where a size is unbacked something is."""
    if len(pad) % 2 or len(pad) > 2 * x.dim() or has_unbacked_sizes(x) or _has_one_layout(x):
        return False
    return all(holds_here(amount <= 0) for amount in pad)


def _has_one_layout(x: torch.Tensor) -> bool:
    """Whether a clone of the tensor has its dims in the order in which they are where something is added."""
    order = list(order_of_format(x))
    strides = [x.stride(d) for d in order]
    if all(known_multiple(outer, inner) for outer, inner in zip(strides, strides[1:])):
        return True  # found without a guard
    return order_of_clone(x) == order


def pad_circular(original: Any, x: torch.Tensor, pad: Sequence[Size]) -> Any:
    """``_pad_circular`` as a part of the repeated tensor, which is one read. The usual form writes each border into the
    result of the one before: a full copy for each. It raises the errors."""
    amounts = list(zip(pad[::2], pad[1::2]))
    plain = all(isinstance(amount, int) and amount >= 0 for amount in pad)
    if not plain or len(pad) % 2 or x.dim() != len(amounts) + 2 or has_unbacked_sizes(x):
        return original(x, pad)
    for dim, (before, after) in zip(reversed(range(x.dim())), amounts):
        size = x.size(dim)
        if size < max(before, after):
            return original(x, pad)
        times = [1] * x.dim()
        times[dim] = 3
        x = x.repeat(times).narrow(dim, size - before, before + size + after)
    return x.clone(memory_format=torch.contiguous_format)


def _left(x: torch.Tensor, pad: Sequence[Size]) -> torch.Tensor:
    for i, (first, last) in enumerate(zip(pad[::2], pad[1::2])):
        if not (known_equal(first, 0) and known_equal(last, 0)):
            dim = x.dim() - 1 - i
            x = x.narrow(dim, -first, x.size(dim) + first + last)
    return x
