"""Limits which operations on sizes a trace records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor
from torch.utils._thunk import Thunk

from symshape.frontend.bridge.size_cache import cache_of
from symshape.frontend.patches.patch import Changes


def comparisons_are_recorded_when_used(changes: Changes) -> None:
    """Records a comparison of sizes, or a question about a layout, only when its node is used. Most just decide
    something during tracing, which leaves a guard and an unused node."""
    changes.wrap(proxy_tensor, "thunkify", _later)


@functools.cache
def _later(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def thunkify(tracer: Any, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        compared = isinstance(out, torch.SymBool) and cache_of(out.node.shape_env) and out.node._hint is not None
        if compared or _asks_for_layout(kwargs.get("args", ())):
            return Thunk(functools.partial(f, *args, **kwargs))
        return original(tracer, f, *args, **kwargs)

    return thunkify


def _asks_for_layout(operands: Sequence[Any]) -> bool:
    """Whether operands are all sizes and all strides of a tensor ("is it dense?"). PyTorch warns when it records that:
    it does not look into the two lists."""
    return len(operands) == 2 and all(isinstance(one, list) for one in operands)
