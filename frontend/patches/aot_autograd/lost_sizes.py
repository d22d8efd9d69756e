"""Forgets unbacked sizes that AOTAutograd creates and loses before it traces.

To find out what is written and aliased, AOTAutograd first runs the graph and creates views of written tensors again. A
slice with a data-dependent end then gets a new unbacked size that no result has. Tracing starts without pending ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.bridge.fake_tensors import forget_new_symbols, tracing_mode
from symshape.frontend.patches.patch import Changes


def lost_sizes_are_dropped(changes: Changes) -> None:
    """Discards pending unbacked symbols when a graph is traced."""
    from torch._functorch._aot_autograd import graph_capture

    changes.wrap(graph_capture, "_create_graph", _forgetting)


@functools.cache
def _forgetting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _create_graph(f: Any, args: Any, *rest: Any, **options: Any) -> Any:
        forget_new_symbols(tracing_mode(args))
        return original(f, args, *rest, **options)

    return _create_graph
