"""Batch normalisation whose momentum is read from a tensor (``BatchNorm1d(momentum=None)``).

The momentum is 1 divided by the number of batches, a data-dependent number for the tracer; here the average is computed
with it as a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import batch_norm

from symshape.frontend.bridge.symbolic_sizes import is_unbacked

_MOMENTUM = 6  # its position among the arguments


def average_by_read_momentum(node: torch.fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Replaces a call of a Dynamo graph by one of ``batch_norm_by_read_momentum``, if its momentum is
    data-dependent."""
    if node.target is not batch_norm:
        return
    momentum = args[_MOMENTUM] if len(args) > _MOMENTUM else kwargs.get("momentum")
    if isinstance(momentum, torch.SymFloat) and is_unbacked(momentum):
        node.target = batch_norm_by_read_momentum


def batch_norm_by_read_momentum(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """As ``torch.nn.functional.batch_norm``, with a momentum that may be symbolic: the operator is called with a
    momentum of 1, which yields the batch's statistics, and these are averaged with the running ones."""
    if not training or running_mean is None or running_var is None:
        return batch_norm(input, running_mean, running_var, weight, bias, training, 0.0, eps)
    mean, variance = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = batch_norm(input, mean, variance, weight, bias, True, 1.0, eps)
    with torch.no_grad():
        for average, of_batch in ((running_mean, mean), (running_var, variance)):
            average.copy_(of_batch * momentum + average * (1 - momentum))
    return result
