"""Decomposes ``multilabel_margin_loss``; PyTorch's decomposition counts targets after the first -1 as class 0.

PyTorch registers it at the Autograd key, before any decomposition table is used; our kernel is at the keys of devices,
which come first.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.decomposition_tables import MEAN
from symshape.frontend.bridge.operators import AutogradKernel

aten: Any = torch.ops.aten


def margin_loss_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by``."""
    return {aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss}


def _multilabel_margin_loss(
    original: Any, x: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of max(0, 1 - x[target] + x[class]) over targets and over classes that are none, by the number of
    classes. Also which classes are targets: zeros and ones of the type of ``x``. Shapes: (classes) or (batch, classes).
    RuntimeError without classes, as in eager mode.
    """
    scores, targets = torch.atleast_2d(x), torch.atleast_2d(target)
    torch._check(x.dim() <= 2 and x.shape == target.shape, lambda: "inconsistent sizes of input and target")
    torch._check(scores.shape[1] != 0, lambda: "Expected non-empty vector or matrix with optional 0-dim batch size")
    classes = torch.arange(scores.shape[1], device=x.device)
    is_target_of = targets.eq(-1).cumsum(1).eq(0)  # those before the first -1
    index = torch.where(is_target_of, targets, 0)
    is_target = ((index.unsqueeze(2) == classes) & is_target_of.unsqueeze(2)).any(1)
    margins = (1 - scores.gather(1, index).unsqueeze(2) + scores.unsqueeze(1)).clamp_min(0)
    counts = is_target_of.unsqueeze(2) & ~is_target.unsqueeze(1)
    losses = torch.where(counts, margins, 0).sum((1, 2)) / scores.shape[1]
    if reduction:
        losses = losses.mean() if reduction == MEAN else losses.sum()
    elif x.dim() < 2:
        losses = losses.squeeze(0)
    return losses, is_target.to(x.dtype).reshape(target.shape)
