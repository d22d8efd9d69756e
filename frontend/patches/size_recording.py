"""Which operations on sizes a trace records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor
from torch.utils._thunk import Thunk

from symshape.frontend.bridge.size_memory import memory_of
from symshape.frontend.patches.patch import Changes


def comparisons_are_recorded_when_used(changes: Changes) -> None:
    """A comparison of sizes is asked to decide something while it is traced, which leaves a guard and no use of the
    node: nearly all are removed as dead code."""
    changes.wrap(proxy_tensor, "thunkify", _later)


@functools.cache
def _later(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def thunkify(tracer: Any, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if isinstance(out, torch.SymBool) and memory_of(out.node.shape_env) and out.node._hint is not None:
            return Thunk(functools.partial(f, *args, **kwargs))
        return usual(tracer, f, *args, **kwargs)

    return thunkify
