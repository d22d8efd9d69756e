"""Decomposes operators that make complex tensors of real ones.

Kernels do not support complex numbers, but these are pairs of real ones in memory, and PyTorch has a view for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.layouts import elementwise_order
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes

_PART = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def joined(real: torch.Tensor, imaginary: torch.Tensor) -> Any:
    """``torch.complex`` of tensors that broadcast; the dims' order in memory is that of the operands."""
    if has_unbacked_sizes(real) or has_unbacked_sizes(imaginary):
        return NotImplemented
    parts = torch.broadcast_tensors(real, imaginary)  # type: ignore[no-untyped-call]
    order = elementwise_order(*parts)
    real, imaginary = (part.permute(order) for part in parts)
    pairs = real.new_empty((*real.shape, 2))
    for i, part in enumerate((real, imaginary)):  # of a stack the kernel reads both parts for each element
        pairs = torch.select_scatter(pairs, part, -1, i)
    whole = torch.view_as_complex(pairs)
    in_order = all(d == position for position, d in enumerate(order))
    return whole if in_order else whole.permute([order.index(d) for d in range(len(order))])


def to_complex(original: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``_to_copy``, but real numbers as complex ones are pairs with 0."""

    def decomposition(x: torch.Tensor, *, dtype: Any = None, **kwargs: Any) -> Any:
        part = _PART.get(dtype)
        if part is None or x.is_complex() or has_unbacked_sizes(x):
            return original(x, dtype=dtype, **kwargs)
        real = torch.ops.aten._to_copy.default(x, dtype=part, **kwargs)
        return joined(real, torch.zeros_like(real))

    return decomposition


def copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """``aten.copy`` of pairs."""
    same = source.dtype == target.dtype and not (source.is_conj() or target.is_conj())
    if not target.is_complex() or not same:
        return NotImplemented
    pairs = torch.ops.aten.copy.default(torch.view_as_real(target), torch.view_as_real(source), non_blocking)
    return torch.view_as_complex(pairs)


class Polar(torch.autograd.Function):
    """``torch.polar``, with eager mode's gradient: of the sign of a radius, not of the radius."""

    @staticmethod
    def forward(ctx: Any, radius: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(radius, angle)
        return torch.complex(radius * angle.cos(), radius * angle.sin())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        radius, angle = ctx.saved_tensors
        real, imaginary = torch.view_as_real(gradient.resolve_conj()).unbind(-1)
        along = real * angle.cos() + imaginary * angle.sin()
        across = imaginary * angle.cos() - real * angle.sin()
        by_radius, by_angle = along * radius.sgn(), across * radius
        return by_radius.sum_to_size(radius.shape), by_angle.sum_to_size(angle.shape)


def silu(original: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``silu``, but of a complex number z/(1 + exp(-z)) by its parts: below 0 both sides of the
    fraction are multiplied by exp(z), which is the small one there."""

    def decomposition(z: torch.Tensor) -> Any:
        if not z.is_complex() or z.is_conj() or has_unbacked_sizes(z):
            return original(z)
        a, b = torch.view_as_real(z).unbind(-1)
        wide = a.to(torch.float32) if a.dtype == torch.float16 else a
        turn, small = b.to(wide.dtype), (-wide.abs()).exp()
        real, imaginary = small * turn.cos(), small * turn.sin()
        is_left = wide < 0
        above = torch.where(is_left, wide * real - turn * imaginary, wide)
        beside = torch.where(is_left, wide * imaginary + turn * real, turn)
        below, aside = 1 + real, torch.where(is_left, imaginary, -imaginary)
        square = below * below + aside * aside
        return joined(
            ((above * below + beside * aside) / square).to(a.dtype),
            ((beside * below - above * aside) / square).to(a.dtype),
        )

    return decomposition
