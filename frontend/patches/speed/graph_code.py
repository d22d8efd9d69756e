"""Generates the Python code of a traced graph when it is first called or read.

`torch.fx.GraphModule` prints its graph as code and compiles it whenever it is made or changed. Dynamo's own graphs wait
for a call (``torch.fx._lazy_graph_module``); the copies of AOTAutograd, of the partitioner and of rewrites do not,
and of them only a few are ever called.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule

from symshape.frontend.patches.patch import Changes


def code_waits_for_a_call(changes: Changes) -> None:
    """Makes graph modules of PyTorch's lazy kind. Those of users' own classes are as they were."""
    changes.wrap(GraphModule, "__new__", _lazy)


@functools.cache
def _lazy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        return original(_LazyGraphModule if _is_plain(cls) else cls, *args, **kwargs)

    return __new__


def _is_plain(cls: type) -> bool:
    """Whether a class is ``GraphModule``, or the class that it makes for each instance of its own."""
    return cls is GraphModule or (cls.__bases__ == (GraphModule,) and cls.__qualname__.endswith("GraphModuleImpl"))


def lazy_code_is_new() -> str:
    """A probe: a lazy graph module must generate code once it is called, and anew once its graph has changed. Returns
    what is wrong, or ""."""
    graph = Graph()
    result = graph.output(graph.call_function(operator.neg, (graph.placeholder("x"),)))
    try:
        gm = _LazyGraphModule({}, graph)
        early = "_code" in vars(gm)
        first = gm(1)
        result.args = (1,)
        gm.recompile()
        second = gm(2)
    except Exception as error:  # noqa: BLE001 - whatever another class raises
        return f"_LazyGraphModule differs: {type(error).__name__}: {error}"
    return "" if (early, first, second) == (False, -1, 1) else f"_LazyGraphModule gave {early}, {first}, {second}"
