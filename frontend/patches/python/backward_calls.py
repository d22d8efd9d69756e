"""``loss.backward()`` breaks the graph, where ``torch.autograd.grad`` does not.

PyTorch has one setting for both. What it traces of ``backward()`` (each leaf's ``.grad`` is written in the graph) gives
other numbers than eager mode where an optimizer follows; gradients that are returned are right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes


def backward_breaks_the_graph(changes: Changes) -> None:
    """As without the setting."""
    from torch._dynamo.variables.tensor import TensorVariable

    changes.wrap(TensorVariable, "method_backward", _untraced)


@functools.cache
def _untraced(usual: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo import config

    @functools.wraps(usual)
    def method_backward(*arguments: Any, **options: Any) -> Any:
        with config.patch(trace_autograd_ops=False):
            return usual(*arguments, **options)

    return method_backward
