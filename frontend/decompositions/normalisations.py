"""Statistics that a normalisation saves for its gradient, where inputs are of a half type and parameters of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

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
        normalised, *statistics = rule(x.float(), *args, **kwargs)
        return normalised.to(x.dtype), *statistics

    return decomposition
