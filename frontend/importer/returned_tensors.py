"""Aliasing of returned tensors: which is a view of which, as the caller can observe.

Eager mode returns the view ``v[1:]`` with ``v`` as its base: autograd makes writes to one visible in the other, and
AOTAutograd reads the base when a later graph writes to one of them. ``v.detach()`` shares the memory, but is no view of
it for autograd. Kernels do not distinguish these, so the graph records it for its results.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping

import torch

from symshape.artifact.relations import DETACHED, OWN, VIEW
from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.bridge.operators import is_view


def relations(graph: torch.fx.Graph, kind: str) -> Mapping[torch.fx.Node | None, str]:
    """``OWN``, ``VIEW`` or ``DETACHED`` for each node that a graph returns together with others in the same memory.

    ``kind``: of the graph. For results of a forward graph with a differentiable type AOTAutograd itself makes views of
    their bases, and results that share memory with an argument; gradients are no views.
    """
    if kind == "backward":
        return {}
    (output,) = graph.find_nodes(op="output")
    memory = {node: _memory(node) for node in output.all_input_nodes}
    bases = {node: _relation(node) for node in output.all_input_nodes}
    # The storage alone would not do: calls of a layer that was traced once have copies of its traced values.
    shared = Counter((memory[node], base) for node, (base, _) in bases.items())
    given = {None, *map(_memory, graph.find_nodes(op="placeholder"))}
    found = [node for node, own in memory.items() if own not in given and shared[own, bases[node][0]] > 1]
    return {node: bases[node][1] for node in found if kind == "inference" or not _has_gradient(node)}


def _memory(node: torch.fx.Node) -> int | None:
    value = node.meta.get("val")
    try:
        return storage_of(value) if isinstance(value, torch.Tensor) else None
    except NotImplementedError:  # sparse
        return None


def _has_gradient(node: torch.fx.Node) -> bool:
    value: torch.Tensor = node.meta["val"]
    return value.is_floating_point() or value.is_complex()


def _relation(node: torch.fx.Node) -> tuple[torch.fx.Node, str]:
    """The node that a value is a view of, itself if it is none, and its relation to that."""
    found = OWN
    while node.op == "call_function":
        # It is taken apart; what it was comes with the node, as a copy.
        if "aten.detach.default" in (str(node.target), str(node.meta.get("original_aten"))):
            found = DETACHED
        elif is_view(node.target):
            found = VIEW if found == OWN else found
        elif node.target is not operator.getitem:
            break
        if not isinstance(node.args[0], torch.fx.Node):
            break
        node = node.args[0]
    return node, found
