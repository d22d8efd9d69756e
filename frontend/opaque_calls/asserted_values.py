"""Functions that test values of a tensor and raise: the test becomes an assertion in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.runtime.eager_errors import EAGER_FORM


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """``torch.nn.functional.gaussian_nll_loss`` where ``var`` is a tensor: of ``input``'s sizes, without its last dim,
    or with one dim of size 1. ValueError for another, as there."""
    torch._assert_async(~(var < 0).any(), "var has negative entry/entries")
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.dim() != input.dim() or sum(b for a, b in zip(input.shape, var.shape) if a != b) != 1:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    bounded = var.clone()
    with torch.no_grad():  # the gradient of a variance below eps is the one at eps
        bounded.clamp_(min=eps)
    loss: torch.Tensor = 0.5 * (bounded.log() + (input - target) ** 2 / bounded)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


_ASSERTED: dict[Any, Callable[..., torch.Tensor]] = {torch.nn.functional.gaussian_nll_loss: gaussian_nll_loss}


def assert_instead(node: torch.fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Replaces a call of a Dynamo graph that tests values and raises by one that asserts them. In place."""
    function = asserting(node.target, args, kwargs)
    if function is not node.target:
        node.meta[EAGER_FORM] = node.target  # which raises the error of eager mode
        node.target = function


def asserting(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function to be traced for one of PyTorch, of these arguments: in most cases that one."""
    found = _ASSERTED.get(function)
    return found if found is not None and isinstance(_argument(args, kwargs, 2, "var"), torch.Tensor) else function


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)
