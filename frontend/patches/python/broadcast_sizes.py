"""The broadcast of two sizes that ``torch.distributions`` asks of C++ is traced as ``torch.broadcast_shapes``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from symshape.frontend.patches.patch import Changes


def broadcast_sizes(changes: Changes) -> None:
    """``torch._C._infer_size`` refuses the tuples that its arguments are in Dynamo's graph, and symbolic sizes."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_infer_size)


@functools.cache
def _of_infer_size(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.value is torch._C._infer_size:
            return VariableTracker.build(tx, torch.broadcast_shapes).call_function(tx, list(args), dict(kwargs))
        return original(self, tx, args, kwargs)

    return call_function
