"""``loss.backward()`` breaks the graph; ``torch.autograd.grad`` does not.

PyTorch has one setting for both. Its trace of ``backward()`` (the graph writes each leaf's ``.grad``) gives other
numbers than eager mode if an optimizer follows; gradients that are returned are right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes


def backward_breaks_the_graph(changes: Changes) -> None:
    """Makes ``backward()`` break the graph, as without the setting."""
    from torch._dynamo.variables.tensor import TensorVariable

    changes.wrap(TensorVariable, "method_backward", _untraced)


@functools.cache
def _untraced(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo import config

    @functools.wraps(original)
    def method_backward(*arguments: Any, **options: Any) -> Any:
        with config.patch(trace_autograd_ops=False):
            return original(*arguments, **options)

    return method_backward
