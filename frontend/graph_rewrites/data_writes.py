"""Inputs of a Dynamo graph that are written to and only seen as ``x.data`` (``p.data.clamp_(-1, 1)``).

A write to ``x.data`` leaves the version of ``x`` as it is, so that autograd does not notice it: what was saved of ``x``
before may still be read by backward. AOTAutograd takes it for a write to ``x``, and backward is then an error that
eager mode does not have. A graph that is given ``x.data`` in the place of ``x`` changes that tensor's version, which
nobody reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from symshape.frontend.bridge.operators import READ_DATA
from symshape.frontend.graph_rewrites.aliasing import changed_operands, storages


def take_data(gm: GraphModule, inputs: Sequence[Any]) -> tuple[list[Any], Callable[..., Any]]:
    """Makes such inputs of ``gm`` their ``.data``, in the traced values of its placeholders. Returns ``inputs``, what
    the graph is traced with, changed alike, and a wrapper for the compiled graph, which changes the arguments of each
    call, and returns an argument itself where the graph does."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    places = _seen_as_data(gm, placeholders)
    if not places:
        return list(inputs), lambda run: run
    found = list(inputs)
    for i in places:
        found[i] = placeholders[i].meta["example_value"] = placeholders[i].meta["example_value"].data
    (output,) = gm.graph.find_nodes(op="output")
    taken = {placeholders[i]: i for i in places}
    returned = [(k, taken[one]) for k, one in enumerate(output.args[0]) if one in taken]
    return found, lambda run: _with_data(run, places, returned)


def _seen_as_data(gm: GraphModule, placeholders: Sequence[Node]) -> list[int]:
    """The positions of those inputs. One whose memory another input shares is none of them: with its history autograd
    loses what AOTAutograd knows of the two."""
    read = [i for i, node in enumerate(placeholders) if _is_read_as_data(node)]
    if not read or not all(_has_memory(node.meta.get("example_value")) for node in gm.graph.nodes):
        return []
    written = {storage for node in gm.graph.nodes for one in changed_operands(node) for storage in storages(one)}
    shared = Counter(storage for node in placeholders for storage in set(storages(node)))
    memory = {i: list(storages(placeholders[i])) for i in read}
    return [i for i, own in memory.items() if len(own) == 1 and own[0] in written and shared[own[0]] == 1]


def _has_memory(value: Any) -> bool:
    """Whether each tensor of a traced value is in memory by sizes and strides, so that it can be compared."""
    tensors = (x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor))
    return all(x.layout is torch.strided for x in tensors)


def _is_read_as_data(node: Node) -> bool:
    calls = [user for user in node.users if user.op != "output"]
    return bool(calls) and all(call.target is READ_DATA for call in calls)


def _with_data(
    run: Callable[..., Any], places: Sequence[int], returned: Sequence[tuple[int, int]]
) -> Callable[..., Any]:
    """``returned``: which results are which arguments."""

    def call(*args: Any) -> Any:
        given = list(args)
        for i in places:
            given[i] = args[i].data
        results = run(*given)
        if returned:
            results = list(results)
            for k, i in returned:
                results[k] = args[i]
        return results

    return call
