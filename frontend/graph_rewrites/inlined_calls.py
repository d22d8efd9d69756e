"""Inlines higher-order operators that only call their function (``invoke_quant``, ``invoke_subgraph``).

``torch.compiler.nested_compile_region`` makes the latter.

That a region is traced once, however often it is called, is what ``trace-layers-once`` finds by itself; that it is
compiled once, ``outline-layers``.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

_HIGHER_ORDER: Any = torch.ops.higher_order
_CALLS = {  # by operator where the operands begin: after the function, and its name
    _HIGHER_ORDER.invoke_quant_packed: 1,
    _HIGHER_ORDER.invoke_quant: 1,
    _HIGHER_ORDER.invoke_subgraph: 2,
}


def inline_calls(gm: torch.fx.GraphModule) -> None:
    """Inlines these calls in a Dynamo graph and its subgraphs, in place. AOTAutograd cannot partition such a call."""
    for module in list(gm.modules()):
        if isinstance(module, torch.fx.GraphModule):
            while any(_inlined(module, node) for node in _calls(module)):
                pass  # what was put there may have such calls


def _calls(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for target in _CALLS for node in gm.graph.find_nodes(op="call_function", target=target)]


def _inlined(gm: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Inlines one call; whether it could. Its results must be read one by one (``getitem``)."""
    graph, function, operands = gm.graph, node.args[0], node.args[_CALLS[node.target] :]
    body = getattr(gm, str(function.target)) if isinstance(function, torch.fx.Node) else None
    if not isinstance(body, torch.fx.GraphModule) or any(user.target is not operator.getitem for user in node.users):
        return False
    copies: dict[Any, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
    with graph.inserting_before(node):
        for held in body.graph.find_nodes(op="get_attr"):
            name = f"{node.name}_{held.target}".replace(".", "_")
            setattr(gm, name, getattr(body, held.target))
            copies[held] = graph.get_attr(name)
        results: Any = graph.graph_copy(body.graph, copies)
    _note_call(node, [copies[one] for one in body.graph.nodes if one.op.startswith("call_")])
    for user in list(node.users):
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    read = node.all_input_nodes
    graph.erase_node(node)
    for one in read:
        if not one.users and one.op != "placeholder":
            graph.erase_node(one)  # the function, and what it says of quantisation
    gm.recompile()
    return True


def _note_call(node: torch.fx.Node, copies: list[torch.fx.Node]) -> None:
    """Says of nodes that they are of this call, and not of the one for which Dynamo has traced the function, as it does
    for the calls of modules (``repeated_layers``)."""
    outer = node.meta.get("nn_module_stack") or {}
    for one in copies:
        inner = one.meta.get("nn_module_stack") or {}
        one.meta["nn_module_stack"] = {**outer, node.name: (node.name, torch.fx.GraphModule), **inner}
