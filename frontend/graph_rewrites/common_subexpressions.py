"""Common subexpression elimination in a traced graph.

Like ``torch._functorch.compile_utils.fx_graph_cse``, which imports Inductor's lowerings (0.35 s of a first call),
merges -0.0 with 0.0, and merges draws of random numbers with other calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from symshape.frontend.bridge.operators import schema_of
from symshape.frontend.graph_rewrites.collectives import communicates
from symshape.frontend.graph_rewrites.draw_order import draws

aten = torch.ops.aten
_UNINITIALISED = (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided)
_KEPT = ("placeholder", "get_attr", "output")


def common_subexpressions(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of the graph with equal pure nodes merged. It can be run."""
    return torch.fx.GraphModule(gm, merged_nodes(gm.graph))


def merged_nodes(graph: torch.fx.Graph) -> torch.fx.Graph:
    """A copy of the graph with one node for all calls of one function with equal arguments.

    Not merged are: draws of random numbers; collectives, since other ranks wait for each; uninitialised memory; nodes
    that read one value into different unbacked symbols, since later nodes were traced with both; calls before and after
    a write to memory; and values that share memory with a result, since eager mode returns two tensors.
    """
    merged = torch.fx.Graph()
    new: dict[torch.fx.Node, torch.fx.Node] = {}
    first: dict[Hashable, torch.fx.Node] = {}
    of_results = _storages_of_results(graph)
    writes = 0
    for node in graph.nodes:
        writes += _writes(node)
        key = _key(node, new) if _may_merge(node, of_results) else None
        found = None if key is None else first.get((writes, key))
        if found is None:
            found = merged.node_copy(node, new.__getitem__)
            if key is not None:
                first[writes, key] = found
        new[node] = found
    return merged


def _may_merge(node: torch.fx.Node, of_results: set[StorageWeakRef]) -> bool:
    if node.op in _KEPT or draws(node) or communicates(node) or node.meta.get("unbacked_bindings"):
        return False
    if getattr(node.target, "overloadpacket", node.target) in _UNINITIALISED:
        return False
    return of_results.isdisjoint(_storages(node))


def _writes(node: torch.fx.Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(schema_of(node.target).is_mutable)
    return node.kwargs.get("out") is not None


def _storages_of_results(graph: torch.fx.Graph) -> set[StorageWeakRef]:
    (output,) = graph.find_nodes(op="output")
    return {storage for node in output.all_input_nodes for storage in _storages(node)}


def _storages(node: torch.fx.Node) -> Iterator[StorageWeakRef]:
    """The storage of each tensor in a node's value."""
    value = node.meta.get("val")
    for one in value if isinstance(value, list | tuple) else (value,):
        if isinstance(one, torch.Tensor):
            with contextlib.suppress(NotImplementedError):  # sparse tensors and the like
                yield StorageWeakRef(one.untyped_storage())


def _key(node: torch.fx.Node, new: dict[torch.fx.Node, torch.fx.Node]) -> Hashable | None:
    """A key that is equal for calls with the same result; None where an argument cannot be compared."""
    key = (node.op, node.target, argument_key(node.args, new.__getitem__), argument_key(node.kwargs, new.__getitem__))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def argument_key(value: Any, new: Callable[[torch.fx.Node], Hashable]) -> Hashable:
    """An argument as a part of the key: 1, 1.0 and True differ, and so do zeros of either sign."""
    if isinstance(value, torch.fx.Node):
        return new(value)
    if isinstance(value, list | tuple):
        return (type(value), *(argument_key(one, new) for one in value))
    if isinstance(value, dict):
        return (dict, *((name, argument_key(one, new)) for name, one in value.items()))
    if isinstance(value, slice):
        return (slice, *(argument_key(one, new) for one in (value.start, value.stop, value.step)))
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, complex):
        return complex, value.real.hex(), value.imag.hex()
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return type(value), value.node
    found: Hashable = (type(value), value)
    return found
