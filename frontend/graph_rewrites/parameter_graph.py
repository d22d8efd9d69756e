"""Moves the computations of a graph on parameters alone to a graph of their own (runtime constant folding).

Before: graph(%x, %w, %s): %p = mul(%w, %s); %q = pack(%p); return conv(%x, %q)
After:  graph(%x, %w, %s, %q): return conv(%x, %q)      parameter graph(%w, %s): return pack(mul(%w, %s))

The parameter graph runs when a parameter has changed, and its results are further arguments of the other graph
(``symshape.runtime.parameter_constants``). (As ``use_runtime_constant_folding`` of AOTInductor.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from symshape.frontend.bridge.aot_autograd import lasting_inputs
from symshape.frontend.bridge.operators import schema_of
from symshape.frontend.graph_rewrites.draw_order import draws

_NAMESPACES: Final = ("aten", "prims", "symshape")


@dataclass(frozen=True)
class ParameterGraph:
    """``graph(*parameters)`` returns the further arguments of the main graph, which come after its own. ``positions``:
    the indices of the parameters among the main graph's own arguments."""

    graph: torch.fx.GraphModule
    positions: tuple[int, ...]


def parameters_of(gm: torch.fx.GraphModule) -> set[Node]:
    """The placeholders of parameters and buffers that are on a CPU and have constant sizes."""
    lasting = lasting_inputs(gm)
    placeholders = gm.graph.find_nodes(op="placeholder")
    return {node for i, node in enumerate(placeholders) if i in lasting and is_constant_tensor(node.meta.get("val"))}


def is_constant_tensor(value: Any) -> bool:
    """Whether a fake value is a plain tensor on a CPU with a constant layout that covers one range of memory."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return all(isinstance(number, int) for number in numbers) and _is_dense(value)


def _is_dense(value: torch.Tensor) -> bool:
    step = 1
    for stride, size in sorted(zip(value.stride(), value.shape)):
        if size != 1 and stride != step:
            return False
        step *= size
    return step > 0


def made_of_parameters(gm: torch.fx.GraphModule, parameters: Collection[Node]) -> set[Node]:
    """The nodes that depend on these placeholders and nothing else, the placeholders included."""
    found = set(parameters)
    for node in gm.graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "call_function" and inputs and found.issuperset(inputs) and _is_pure(node):
            found.add(node)
    return found


def _is_pure(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _NAMESPACES or draws(node):
        return False
    return not schema_of(target).is_mutable and is_constant_tensor(node.meta.get("val"))


def take_out(gm: torch.fx.GraphModule, wanted: Sequence[Node]) -> ParameterGraph:
    """Makes ``wanted``, nodes that depend on parameters alone, arguments of the graph, in place; returns the graph that
    computes them. They need ``meta["val"]``."""
    needed = _ancestors(wanted)
    placeholders = gm.graph.find_nodes(op="placeholder")
    positions = tuple(i for i, node in enumerate(placeholders) if node in needed)
    own = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node in needed:
            copies[node] = own.node_copy(node, copies.__getitem__)
    own.output(tuple(copies[node] for node in wanted))
    last = placeholders[-1]
    for i, node in enumerate(wanted):
        with gm.graph.inserting_after(last):
            last = gm.graph.placeholder(f"of_parameters_{i}")
        last.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(last)
    for node in reversed(gm.graph.nodes):
        if node in needed and node.op != "placeholder" and not node.users:
            gm.graph.erase_node(node)
    return ParameterGraph(torch.fx.GraphModule(gm, own), positions)


def _ancestors(nodes: Iterable[Node]) -> set[Node]:
    found: set[Node] = set()
    queue = list(nodes)
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue += node.all_input_nodes
    return found
