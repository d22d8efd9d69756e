"""Finds inputs of a kernel that may share memory with one of its outputs."""

from __future__ import annotations

from torch_mlir import ir

from symshape.artifact.element_types import ITEM_SIZE
from symshape.dialects.types import dtype_of
from symshape.passes.fusion.compute_graph import Graph
from symshape.passes.fusion.kernel_plan import KernelPlan, Load, Step, Store


def in_place_pairs(plan: KernelPlan, graph: Graph) -> list[tuple[int, int]]:
    """(input, output) pairs of the kernel, by position: every point reads of the input only the element that the same
    point then writes to the output.

    Only in kernels without reductions: those read a row several times, and may keep values of their own in the row of
    an output meanwhile. Layouts must be the same, expression for expression, and so must be the item size.
    """
    if any(plan.reduced):
        return []
    gathered = {v for item in plan.items if isinstance(item, Step) for v in item.node.captured}
    pairs = []
    for i, value in enumerate(plan.inputs):
        if value in gathered or value in graph.sizes.foreign:
            continue
        maps = {item.map for item in plan.items if isinstance(item, Load) and item.base == value}
        pairs += [(i, j) for j, s in enumerate(plan.stores) if maps == {s.map} and _same_memory(graph, value, s)]
    return pairs


def _same_memory(graph: Graph, value: ir.Value, store: Store) -> bool:
    read, written = graph.layout(value), graph.layout(store.value)
    if (read.sizes, read.strides) != (written.sizes, written.strides):
        return False
    size = ITEM_SIZE.get(dtype_of(value))
    return size is not None and size == ITEM_SIZE.get(dtype_of(store.value))
