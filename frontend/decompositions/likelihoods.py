"""``gaussian_nll_loss``, whose Python code in PyTorch asks whether a variance is negative: asserted at call time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def takes_variances(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the variances are a tensor."""
    return isinstance(args[2] if len(args) > 2 else kwargs.get("var"), torch.Tensor)


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """As ``torch.nn.functional.gaussian_nll_loss``. ValueError for variances of other sizes, and other reductions."""
    torch._assert_async(~(var < 0).any(), "var has negative entry/entries")
    var = _fitting(var, input)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _fitting(var: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Variances of each element, of all of the last dim, or of all of one dim."""
    if var.size() == input.size():
        return var
    if input.size()[:-1] == var.size():
        return var.unsqueeze(-1)
    pairs = zip(input.size(), var.size())
    if input.ndim == var.ndim and sum(theirs for ours, theirs in pairs if ours != theirs) == 1:
        return var
    raise ValueError("var is of incorrect size")
