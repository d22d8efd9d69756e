"""Unbacked sizes that AOTAutograd has made and lost before it traces.

What it runs first, to learn what is written and aliased, makes views of what was written to a second time: a slice up
to a number of the data has a size of its own then, which no result has. The trace begins with none that is looked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.bridge.fake_tensors import forget_new_symbols, tracing_mode
from symshape.frontend.patches.patch import Changes


def are_not_looked_for(changes: Changes) -> None:
    """Where a graph is traced."""
    from torch._functorch._aot_autograd import graph_capture

    changes.wrap(graph_capture, "_create_graph", _forgetting)


@functools.cache
def _forgetting(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def _create_graph(f: Any, args: Any, *rest: Any, **options: Any) -> Any:
        forget_new_symbols(tracing_mode(args))
        return usual(f, args, *rest, **options)

    return _create_graph
