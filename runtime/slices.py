"""``associative_scan`` as a library call, slice by slice.

PyTorch's own implementation calls the function with many slices at once, stacked along a new first dim, which is valid
only for a pointwise function if it was traced for slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def combine_slices(
    combine: Callable[..., Any], xs: Sequence[torch.Tensor], additional: Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Along the first dim of each x: the first slice, and what ``combine`` makes of the slices before and each next
    one. Contiguous tensors of the sizes of ``xs``."""
    results = tuple(x.clone(memory_format=torch.contiguous_format) for x in xs)
    for i in range(1, len(xs[0])):
        found = combine(*(y[i - 1] for y in results), *(x[i] for x in xs), *additional)
        for y, one in zip(results, found, strict=True):
            y[i] = one
    return results


def call_by_slices(module: Any) -> None:
    """If ``module`` is a graph that runs as it is, replaces its ``associative_scan`` by ``combine_slices``, in nested
    graphs too."""
    if not isinstance(module, torch.fx.GraphModule):
        return
    for graph in module.modules():
        if not isinstance(graph, torch.fx.GraphModule):
            continue
        found = graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.associative_scan)
        for node in found:
            node.target = combine_slices
        if found:
            graph.recompile()
