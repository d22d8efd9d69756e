"""Symbols that backward is given on their own.

A graph of Dynamo's has an argument for each symbol. One that is traced without Dynamo reads sizes off its tensors, and
what the partitioner saves for backward may be a product of two sizes, and no tensor that shows either of them. Each
size in backward is an expression over symbols, so backward needs their values.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import expression_of

aten: Any = torch.ops.aten


def keep_symbols(joint: torch.fx.GraphModule) -> None:
    """Backward reads each symbol that occurs in a computed size of a joint graph, and that is no argument of it."""
    missing: set[Any] = set()
    arguments: set[Any] = set()
    for node in joint.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            found = expression_of(value)
            (arguments if node.op == "placeholder" else missing).update(found.free_symbols)
    for node in joint.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if "tangents" in str(node.target) or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        for dim, size in enumerate(value.size()):
            symbol = expression_of(size) if isinstance(size, torch.SymInt) else None
            if symbol in missing - arguments:
                arguments.add(symbol)
                _read(joint.graph, node, dim, size)


def _read(graph: torch.fx.Graph, tensor: torch.fx.Node, dim: int, size: Any) -> None:
    """A call in backward that does nothing with a size."""
    last = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_after(last):
        shown = graph.call_function(aten.sym_size.int, (tensor, dim))
    shown.meta.update(val=size, partitioner_tag="is_forward")
    (output,) = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        used = graph.call_function(aten.sym_constrain_range.default, (shown,))
    used.meta.update(val=None, partitioner_tag="must_be_in_backward")
