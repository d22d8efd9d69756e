"""``x.tolist()`` of floats, where the sizes of ``x`` are known: each element is read by ``item()``.

Dynamo does so for integers, and breaks the graph for others. With a symbolic size it still does, and for booleans:
programs ask them in ``if``, and one graph break before them all is better than one at each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._dynamo.variables.builder import VariableTracker, wrap_fx_proxy
from torch._dynamo.variables.tensor import TensorVariable

from symshape.frontend.patches.patch import Changes

# Each element is two nodes of the graph and waits for the host, so that for many a graph break is less work.
_MANY: Final = 64


def numbers_are_read(changes: Changes) -> None:
    """Traces it, for up to 64 elements."""
    changes.wrap(TensorVariable, "method_tolist", _reading)


@functools.cache
def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method_tolist(self: Any, tx: Any) -> Any:
        value = self.as_proxy().node.meta["example_value"]
        if not _is_read(value):
            return original(self, tx)
        return VariableTracker.build(tx, _items(tx, self.as_proxy(), tuple(value.shape)))

    return method_tolist


def _is_read(value: torch.Tensor) -> bool:
    known = all(type(size) is int for size in value.shape)
    return known and value.is_floating_point() and value.numel() <= _MANY


def _items(tx: Any, proxy: Any, shape: tuple[int, ...]) -> Any:
    """The elements as variables of Dynamo, in lists as deep as ``shape`` is long."""
    if not shape:
        return wrap_fx_proxy(tx, proxy.item())
    return [_items(tx, proxy[i], shape[1:]) for i in range(shape[0])]
