"""Gradients of losses without conditions on sizes, with eager mode's results for empty operands and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.decomposition_tables import MEAN
from symshape.frontend.bridge.symbolic_sizes import is_known_empty

Decomposition = Callable[..., Any]


def soft_margin_loss_backward(
    gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    """PyTorch's subtracts one from a sigmoid: nothing of the gradient is left where a margin is above 17."""
    slope = -target * gradient * torch.sigmoid(-target * x)
    return slope / x.numel() if reduction == MEAN else slope


def zeros_if_empty(rule: Decomposition) -> Decomposition:
    """The decomposition of a loss's gradient, which divides by the number of elements: zeros if there are none."""

    def decomposition(gradient: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(x) if is_known_empty(x) else rule(gradient, x, *args, **kwargs)

    return decomposition


def nan_where_operands_are(rule: Decomposition) -> Decomposition:
    """The decomposition of a gradient by the sign of a difference, which for NaN is 0: NaN, as in eager mode."""

    def decomposition(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
        difference = x - target
        return torch.where(difference.isnan(), difference, rule(gradient, x, target, *args))

    return decomposition


def log_sigmoid_without_saved(rule: Decomposition) -> Decomposition:
    """The decomposition of ``log_sigmoid_backward``, which tests whether forward has saved exponentials: on a GPU it
    has not, and an empty operand has none. Here they are always recomputed."""

    def decomposition(gradient: torch.Tensor, x: torch.Tensor, _: torch.Tensor) -> Any:
        return rule(gradient, x, x.new_empty(0))

    return decomposition
