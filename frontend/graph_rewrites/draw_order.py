"""Keeps the order of random draws: every draw of eager mode is made once, in eager mode's order.

Where backward is reordered, collectives keep their order too.

A draw changes the state of the generator, which operators' schemas do not show. PyTorch's partitioner may move a draw
from backward to forward, repeat one in backward, drop one without users, and reorder those of backward; here it may
not. Draws inside a checkpoint are repeated in backward from the generator's state in forward.

This file touches private PyTorch APIs.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import is_recomputed
from symshape.frontend.bridge.operators import run_with_states
from symshape.frontend.graph_rewrites.collectives import communicates
from symshape.runtime.draw import draw_and_save_state, draw_from_state

Tag = torch.Tag
_HIGHER_ORDER = torch._ops.HigherOrderOperator
_DRAWS = "symshape_draws"  # says it of a higher-order operator in a graph that has no module, and no subgraphs yet
_FROM_STATES = ("run_with_rng_state", "graphsafe_run_with_rng_state")


def draws(node: torch.fx.Node) -> bool:
    """Whether a node changes a generator's state: it draws random numbers, or runs a subgraph that does."""
    if node.op != "call_function":
        return False
    if not isinstance(node.target, _HIGHER_ORDER):
        return node.target is draw_and_save_state or _is_drawing(node.target)
    if node.target.__name__ in _FROM_STATES:
        return False
    return bool(node.meta.get(_DRAWS)) or any(map(_is_drawing, _leaves(node)))


def is_drawing_subgraph(node: torch.fx.Node) -> bool:
    """Whether a node is a higher-order operator whose subgraphs draw."""
    return isinstance(node.target, _HIGHER_ORDER) and draws(node)


def _is_drawing(value: Any) -> bool:
    if isinstance(value, torch.fx.Node):
        owner = value.graph.owning_module
        held = getattr(owner, str(value.target), None) if value.op == "get_attr" and owner is not None else None
        return isinstance(held, torch.fx.GraphModule) and any(map(draws, held.graph.nodes))
    return isinstance(value, torch._ops.OpOverload) and Tag.nondeterministic_seeded in value.tags


def _leaves(node: torch.fx.Node) -> list[Any]:
    return torch.utils._pytree.arg_tree_leaves(*node.args, **node.kwargs)


def keep_draws(joint: torch.fx.GraphModule) -> None:
    """Tags the draws of a joint graph for the partitioner: each stays in forward or in backward, as in eager mode; only
    those of a checkpoint are in both."""
    for node in joint.graph.nodes:
        if node.meta.get("ac_graph_id", 0) is None:  # of a checkpoint that Dynamo has not seen
            del node.meta["ac_graph_id"]
        if not draws(node):
            continue
        node.meta[_DRAWS] = True
        if is_recomputed(node) and isinstance(node.target, _HIGHER_ORDER):
            _save(node)  # the partitioner gives no state to these
        if not is_recomputed(node):
            # Nodes of the backward of a user's autograd.Function have no tag.
            forward = node.meta.get("partitioner_tag") in ("is_forward", "must_be_in_forward")
            node.meta["partitioner_tag"] = "must_be_in_forward" if forward else "must_be_in_backward"


def _save(node: torch.fx.Node) -> None:
    """Marks a call and its results as saved: backward does not recompute them."""
    from torch.utils.checkpoint import CheckpointPolicy

    for one in (node, *(user for user in node.users if user.target is operator.getitem)):
        one.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def with_states(functionalize: Callable[..., Any], joint: Any, fw: Any, bw: Any, sizes: int) -> Any:
    """Replaces draws of a checkpoint by ``run_and_save_rng_state`` in forward and ``run_with_rng_state`` in backward
    (``functionalize``: PyTorch's function that does so), and gives these nodes the fake values of the draws, which they
    lack."""
    save, run = run_with_states()
    old_forward, old_backward = set(fw.graph.nodes), list(bw.graph.nodes)
    fw, bw = functionalize(joint, fw, bw, sizes)
    added, left = set(bw.graph.nodes).difference(old_backward), set(bw.graph.nodes)
    gone = [node for node in old_backward if node not in left]
    again = [node for node in bw.graph.find_nodes(op="call_function", target=run) if node in added]
    for old, new in zip(gone, again, strict=True):  # each call is written where its draw was
        new.meta = dict(old.meta)
        if _is_on_cpu(old):
            new.target = draw_from_state
    for saving in fw.graph.find_nodes(op="call_function", target=save):
        if saving in old_forward:
            continue
        parts = {user.args[1]: user for user in saving.users}
        if _is_on_cpu(parts[1]):
            saving.target = draw_and_save_state
        saving.meta = {**parts[1].meta, "val": (parts[0].meta["val"], parts[1].meta["val"])}
        saving.meta.pop("unbacked_bindings", None)
    return fw, bw


def _is_on_cpu(node: torch.fx.Node) -> bool:
    return all(x.is_cpu for x in torch.utils._pytree.tree_leaves(node.meta["val"]) if isinstance(x, torch.Tensor))


def reordered(gm: torch.fx.GraphModule, reorder: Callable[..., Any]) -> torch.fx.GraphModule:
    """The graph as ``reorder`` orders it, but with draws and collectives in their original order, each kind by
    itself."""
    orders = [[node for node in gm.graph.nodes if kind(node)] for kind in (draws, communicates)]
    kept = [node for order in orders for node in order]
    found: torch.fx.GraphModule = reorder(gm)
    if not kept or found is gm:
        return found
    made = {node.name: node for node in found.graph.nodes}
    (output,) = found.graph.find_nodes(op="output")
    with found.graph.inserting_before(output):
        for node in _ancestors(gm.graph, kept):
            if node.name not in made:
                made[node.name] = found.graph.node_copy(node, lambda one: made[one.name])
    _sort(found.graph, [[made[node.name] for node in order] for order in orders])
    found.recompile()
    return found


def _ancestors(graph: torch.fx.Graph, nodes: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """The nodes and all nodes that they depend on, in the order of the graph."""
    found, waiting = set(nodes), list(nodes)
    while waiting:
        new = [one for one in waiting.pop().all_input_nodes if one not in found]
        found.update(new)
        waiting += new
    return [node for node in graph.nodes if node in found]


def _sort(graph: torch.fx.Graph, chains: list[list[torch.fx.Node]]) -> None:
    """Sorts the graph topologically with the nodes of each chain in the chain's order, and moves as few nodes as
    possible."""
    nodes = list(graph.nodes)
    position = {node: i for i, node in enumerate(nodes)}
    needed = {node: set(node.all_input_nodes) for node in nodes}
    for first, second in (pair for chain in chains for pair in zip(chain, chain[1:])):
        needed[second].add(first)
    users: dict[torch.fx.Node, list[torch.fx.Node]] = {node: [] for node in nodes}
    for node, inputs in needed.items():
        for one in inputs:
            users[one].append(node)
    ready = [position[node] for node in nodes if not needed[node]]
    heapq.heapify(ready)
    last: torch.fx.Node | None = None
    while ready:
        node = nodes[heapq.heappop(ready)]
        if last is not None:
            last.append(node)
        last = node
        for user in users[node]:
            needed[user].discard(node)
            if not needed[user]:
                heapq.heappush(ready, position[user])
    graph.lint()
