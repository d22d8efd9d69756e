"""Decomposes normalisations, and gradients of group norms of empty tensors. Statistics that are saved for half inputs
and float32 parameters have the parameters' type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from symshape.frontend.bridge.layouts import is_channels_last
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes, is_known_empty

_torch: Any = torch  # its checks have no types
_HALF = (torch.float16, torch.bfloat16)


def with_eager_statistics(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decompositions of normalisations with statistics of the parameters' type, as eager mode's are on a CPU.

    PyTorch's round them to the inputs' type: of numbers around 100 with a deviation of 1, a float16 mean is off by 3%
    of that, and so are the gradients of inputs and weights.
    """
    aten = torch.ops.aten
    packets = (
        aten.native_layer_norm,
        aten.native_group_norm,
        aten.native_batch_norm,
        aten._native_batch_norm_legit,
        aten._native_batch_norm_legit_functional,
        aten._batch_norm_with_update,
        aten._batch_norm_with_update_functional,
    )
    return {op: _of_parameters(rule) for op, rule in table.items() if getattr(op, "overloadpacket", op) in packets}


def _of_parameters(rule: Callable[..., Any]) -> Callable[..., Any]:
    def decomposition(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        others = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if x.dtype not in _HALF or all(other.dtype != torch.float32 for other in others):
            return rule(x, *args, **kwargs)
        found = rule(x.float(), *args, **kwargs)
        if found is NotImplemented:
            return found
        normalised, *statistics = found
        return normalised.to(x.dtype), *statistics

    return decomposition


@functools.cache
def group_norm_of_channels_first(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``native_group_norm``. For channels-last images on a CPU it stays a call: a group is a few
    contiguous elements of each pixel there, which fill a part of a vector, while the operator processes all channels at
    once."""

    def decomposition(x: torch.Tensor, *args: Any) -> Any:
        if x.device.type == "cpu" and is_channels_last(x) and not has_unbacked_sizes(x):
            return NotImplemented
        return rule(x, *args)

    return decomposition


def group_norm_gradients_zero_if_empty(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``native_group_norm_backward``, which divides by the size of a group: zeros if it is 0."""

    def decomposition(
        gradient: torch.Tensor, x: torch.Tensor, mean: Any, rstd: Any, weight: Any, *sizes_and_mask: Any
    ) -> Any:
        if not is_known_empty(x):
            return rule(gradient, x, mean, rstd, weight, *sizes_and_mask)
        *_, channels, _, _, wanted = sizes_and_mask
        found = [torch.zeros_like(x), *(x.new_zeros(channels) for _ in range(2))]
        return tuple(one if asked else None for one, asked in zip(found, wanted, strict=True))

    return decomposition


def group_norm_sizes(
    x: torch.Tensor, weight: Any, bias: Any, batch: Any, channels: Any, area: Any, groups: int, *_: Any
) -> Any:
    """The fake rule: on a CPU channels-last stays; statistics have the type of the parameters."""
    _torch._check(
        channels % groups == 0,
        lambda: f"Expected number of channels in input to be divisible by num_groups, but got {x.shape} and {groups}",
    )
    dtype = next((one.dtype for one in (weight, bias) if one is not None), x.dtype)
    statistics = (x.new_empty([batch, groups], dtype=dtype) for _ in range(2))
    if x.device.type != "cpu" or not is_channels_last(x):
        return x.new_empty(x.shape), *statistics
    height, width = x.shape[2:]
    return x.new_empty([batch, height, width, channels]).permute(0, 3, 1, 2), *statistics
