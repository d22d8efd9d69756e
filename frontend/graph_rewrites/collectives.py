"""Keeps the collectives of a traced graph: every collective of eager mode, once, in eager mode's order.

Ranks match collectives by order: the first one of a rank with the first one of the others. So equal collectives are not
merged, none moves between forward and backward, and passes keep their order (``host.call``, ``collective``). A wait
concerns one rank alone and may move.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import is_recomputed

_NAMESPACES = frozenset(
    {"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d", "symm_mem", "_dtensor"}
)
_WAITS = frozenset({"wait_tensor"})
_COMMUNICATES = "symshape_communicates"  # says it of a higher-order operator in a graph that has no module yet


def communicates(node: torch.fx.Node) -> bool:
    """Whether a node is a collective, or runs a subgraph with one. A wait is not a collective."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        leaves = torch.utils._pytree.arg_tree_leaves(*node.args, **node.kwargs)
        return bool(node.meta.get(_COMMUNICATES)) or any(map(_is_subgraph_with_one, leaves))
    return _is_of_ranks(node.target) and _name(node.target) not in _WAITS


def is_wait(node: torch.fx.Node) -> bool:
    """Whether a node waits for the result of a collective."""
    return node.op == "call_function" and _is_of_ranks(node.target) and _name(node.target) in _WAITS


def _is_of_ranks(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace in _NAMESPACES


def _name(target: Any) -> str:
    name: str = target.overloadpacket.__name__
    return name


def _is_subgraph_with_one(value: Any) -> bool:
    if not isinstance(value, torch.fx.Node) or value.op != "get_attr" or value.graph.owning_module is None:
        return False
    held = getattr(value.graph.owning_module, str(value.target), None)
    return isinstance(held, torch.fx.GraphModule) and any(map(communicates, held.graph.nodes))


def keep_collectives(joint: torch.fx.GraphModule) -> None:
    """Tags the collectives of a joint graph for the partitioner: each stays in forward or in backward, as in eager
    mode, with its wait, so that nothing is in flight between the two. Those of a checkpoint are in both."""
    for node in joint.graph.nodes:
        if communicates(node):
            node.meta[_COMMUNICATES] = True
        elif not is_wait(node):
            continue
        if not is_recomputed(node):
            forward = node.meta.get("partitioner_tag") in ("is_forward", "must_be_in_forward")
            node.meta["partitioner_tag"] = "must_be_in_forward" if forward else "must_be_in_backward"
