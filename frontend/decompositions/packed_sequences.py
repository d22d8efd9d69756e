"""Decomposes ``pack_padded_sequence`` and ``pad_packed_sequence``. The number of packed rows is data-dependent.

Packing is PyTorch's own operator; its gradient, and padding, which read the data in C++, are arithmetic with the index
of each packed row: its step, and its position in the batch.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.operators import AutogradKernel, in_transform

aten: Any = torch.ops.aten


def packed_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    return {aten._pack_padded_sequence.default: _pack}


class _Packed(torch.autograd.Function):
    """In backward, rows are scattered to their origins, and padding has no gradient."""

    @staticmethod
    def forward(ctx: Any, original: Any, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        data, batches = original(x, lengths, batch_first)
        ctx.save_for_backward(batches)
        ctx.shape, ctx.batch_first = x.shape, batch_first
        ctx.mark_non_differentiable(batches)
        return data, batches

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        (batches,) = ctx.saved_tensors
        found = _padded(gradient, batches, ctx.shape[:2] if not ctx.batch_first else ctx.shape[1::-1], 0.0)
        return None, found.transpose(0, 1) if ctx.batch_first else found, None, None


def _pack(original: Any, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    if in_transform() or not (torch.is_grad_enabled() and x.requires_grad):
        return original(x, lengths, batch_first)
    return _Packed.apply(original, x, lengths, batch_first)  # type: ignore[no-untyped-call]


def pad_packed(
    data: torch.Tensor, batches: torch.Tensor, batch_first: bool, value: Any, total_length: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """``batches``: how many rows each step has, the most in the first one. ``total_length``: of the result, at
    least the number of steps, or 0 for that."""
    rows: Any = batches[0].item()
    torch._check(rows >= 0)
    steps = batches.size(0)
    length: Any = torch.sym_max(total_length, steps)  # type: ignore[no-untyped-call]
    padded = _padded(data, batches, (length, rows), value)
    lengths = (batches.unsqueeze(1) > torch.arange(rows)).sum(0)
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _padded(data: torch.Tensor, batches: torch.Tensor, shape: Any, value: Any) -> torch.Tensor:
    """``shape``: steps and rows of the result."""
    step = torch.repeat_interleave(batches, output_size=data.size(0))
    before = batches.cumsum(0) - batches
    row = torch.arange(data.size(0)) - before[step]
    made = data.new_full([*shape, *data.shape[1:]], value)
    return made.index_put([step.to(data.device), row.to(data.device)], data)
