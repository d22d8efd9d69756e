"""A forward graph without what it saves for backward, for calls after which nobody asks for gradients.

Before: forward(%x, %w, %s): %y = conv(%x, %w); %z = mul(%y, %s); %r = relu(%z); return %r, %x, %w, %s, %y, %r
After:  results alone(%x, %w, %s): %y = conv(%x, %w); %z = mul(%y, %s); return relu(%z)

A model in eval mode that is called without ``no_grad`` has a forward graph, and each convolution's result is saved: it
can neither be a part of a larger kernel nor be laid out in another way. What is saved can be computed later, of the
same inputs (``symshape.runtime.postponed_activations``), where the graph neither draws nor writes.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from symshape.frontend.bridge.aot_autograd import base_arguments, lasting_inputs, saved_for_backward
from symshape.frontend.bridge.operators import schema_of
from symshape.frontend.graph_rewrites.draw_order import draws
from symshape.runtime.postponed_activations import Place

_NAMESPACES: Final = ("aten", "prims")  # operators of others may have effects that no schema shows


@dataclass(frozen=True)
class ResultsAlone:
    """``graph`` has the inputs of the forward graph. ``places``: where each result of that is found."""

    graph: torch.fx.GraphModule
    places: tuple[Place, ...]


def results_alone(gm: torch.fx.GraphModule) -> ResultsAlone | None:
    """A copy of a forward graph; None where nothing is saved but inputs, or that cannot be computed later."""
    saved, (output,) = saved_for_backward(gm), gm.graph.find_nodes(op="output")
    if not any(saved) or base_arguments(gm) or not all(map(_may_run_again, gm.graph.nodes)):
        return None
    results: Any = output.args[0]
    placeholders = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    lasting = lasting_inputs(gm)
    kept = {one for one, is_saved in zip(results, saved, strict=True) if is_saved and one in placeholders}
    if any(_is_tensor(node) and i not in lasting and node not in kept for node, i in placeholders.items()):
        return None  # the caller may write to an input that eager mode does not save
    places, wanted = _places(results, saved, placeholders)
    if not any(place.source == "activation" for place in places):
        return None
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node is not output:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    made = graph.output(tuple(copies[one] if isinstance(one, Node) else one for one in wanted))
    told = dict(zip(results, output.meta.get("desc") or (), strict=False))
    made.meta = {**output.meta, "desc": [told.get(one) for one in wanted]}
    graph.eliminate_dead_code()
    copy = torch.fx.GraphModule(gm, graph)
    copy.meta = gm.meta
    return ResultsAlone(copy, places)


def _places(results: Any, saved: list[bool], placeholders: dict[Node, int]) -> tuple[tuple[Place, ...], list[Any]]:
    """Where the results of the forward graph are found, and what the graph of results alone returns."""
    wanted: list[Any] = []
    places: list[Place] = []
    activations = 0
    returned = {one for one, is_saved in zip(results, saved, strict=True) if not is_saved}
    for one, is_saved in zip(results, saved, strict=True):
        if is_saved and one in placeholders:
            places.append(Place("input", placeholders[one]))
        elif is_saved and one not in returned and _is_tensor(one):
            places.append(Place("activation", activations))
            activations += 1
        else:  # sizes among them
            places.append(Place("result", len(wanted)))
            wanted.append(one)
    return tuple(places), wanted


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _may_run_again(node: Node) -> bool:
    """Whether a node does nothing but compute its result."""
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target in vars(operator).values() or not isinstance(node.meta.get("val"), torch.Tensor)
    return target.namespace in _NAMESPACES and not schema_of(target).is_mutable and not draws(node)
