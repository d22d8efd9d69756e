"""The sizes of batch normalisations, computed by one subtraction, for Dynamo and for AOTAutograd's first pass.

PyTorch's fake rule is the decomposition, some twenty operators, of which only sizes, types and layouts are used. Here
results are made as there: normalised values by a pointwise operator of the input and a per-channel tensor, statistics
as new tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.size_cache import cache_of_sizes
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes
from symshape.frontend.decompositions.eager_layouts import restrided

Rule = Callable[..., Any]


def inference_sizes(original: Rule) -> Rule:
    """The rule for ``_native_batch_norm_legit_no_training``."""

    def sizes(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
        if not _is_plain(x, weight, bias, mean, var):
            return original(x, weight, bias, mean, var, momentum, eps)
        return _normalised(x, mean), _statistics(x, 0), _statistics(x, 0)

    return sizes


def training_sizes(original: Rule) -> Rule:
    """The rule for ``_native_batch_norm_legit``."""

    def sizes(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
        if not _is_plain(x, weight, bias, mean, var):
            return original(x, weight, bias, mean, var, training, momentum, eps)
        saved = [_statistics(x, x.shape[1] if training else 0) for _ in range(2)]
        if training:
            for running in (mean, var):
                running.copy_(saved[0])
        return _normalised(x, mean), *saved

    return sizes


def functional_sizes(original: Rule) -> Rule:
    """The rule for ``_native_batch_norm_legit_functional``, which returns the running statistics as well."""

    def sizes(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
        if not _is_plain(x, weight, bias, mean, var):
            return original(x, weight, bias, mean, var, training, momentum, eps)
        saved = [_statistics(x, x.shape[1] if training else 0) for _ in range(2)]
        return _normalised(x, mean), *saved, torch.empty_like(mean), torch.empty_like(var)

    return sizes


def _is_plain(x: torch.Tensor, *parameters: torch.Tensor | None) -> bool:
    """Whether the input and the per-channel tensors are a usual combination: no error to raise, and no guard on the
    channels."""
    if cache_of_sizes(x.shape) is None or not x.is_cpu or x.dtype != torch.float32 or x.dim() < 2:
        return False
    channels = x.shape[1]
    if not isinstance(channels, int) or has_unbacked_sizes(x):
        return False
    return all(one is None or (one.shape == (channels,) and one.dtype == torch.float32) for one in parameters)


def _normalised(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return restrided(x - mean.view(-1, *[1] * (x.dim() - 2)))


def _statistics(x: torch.Tensor, channels: int) -> torch.Tensor:
    return torch.empty(channels, dtype=x.dtype, device=x.device)
