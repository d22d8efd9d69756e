"""Equal calls of a traced graph become one."""

from __future__ import annotations

import math

import torch

from symshape.frontend.bridge.aot_autograd import merge_equal_calls
from symshape.frontend.graph_rewrites.draw_order import draws


def common_subexpressions(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same graph with repeated pure nodes merged. Strides are compared too: merged values keep their layout."""
    return torch.fx.GraphModule(gm, merged_nodes(gm.graph))


def merged_nodes(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Nodes that read one value into data-dependent sizes of their own are kept: what follows is traced with both.
    So are those that draw random numbers, and those that differ in the sign of a zero alone, which Python takes for
    equal."""
    tag = "differs_by"
    for node in graph.nodes:
        text = _differences(node)
        if text:
            node.kwargs = {**node.kwargs, tag: text}
    found = merge_equal_calls(graph)
    for node in (*graph.nodes, *found.nodes):
        if tag in node.kwargs:
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != tag}
    return found


def _differences(node: torch.fx.Node) -> str:
    """What tells a call from others that have equal arguments; "" if nothing does."""
    if node.op != "call_function":
        return ""
    symbols = sorted(map(str, node.meta.get("unbacked_bindings") or ()))
    numbers = [x for x in (*node.args, *node.kwargs.values()) if isinstance(x, float)]
    negative = any(x == 0 and math.copysign(1, x) < 0 for x in numbers)
    own = [node.name] if draws(node) else []
    return ",".join([*symbols, *own]) + (f" negative zeros: {numbers}" if negative else "")
