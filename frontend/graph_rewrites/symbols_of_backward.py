"""Saves symbols for backward that no saved tensor has as a size.

A graph of Dynamo's has an argument for each symbol. One that is traced without Dynamo reads sizes off its tensors, and
what the partitioner saves for backward may be a product of two sizes, and no tensor that shows either of them. Each
size in backward is an expression over symbols, so backward needs their values.

So it is with integers that are computed by way of floats (``int(1.25 * n)``): to sizes each is a symbol as well.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.importer.traced_symbols import named_expr
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr

aten: Any = torch.ops.aten


def keep_symbols(joint: torch.fx.GraphModule) -> None:
    """Backward reads each symbol that occurs in a computed size of a joint graph, and that is no argument of it."""
    missing: set[Any] = set()
    rounded: dict[Any, torch.fx.Node] = {}
    arguments: set[Any] = set()
    for node in joint.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            found = expression_of(value)
            (arguments if node.op == "placeholder" else missing).update(found.free_symbols)
            if node.op == "call_function" and _is_made_of_floats(found):
                rounded.setdefault(found, node)
    for number in rounded.values():
        _keep(joint.graph, number)
    for node in joint.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if "tangents" in str(node.target) or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        for dim, size in enumerate(value.size()):
            symbol = expression_of(size) if isinstance(size, torch.SymInt) else None
            if symbol in missing - arguments:
                arguments.add(symbol)
                _read(joint.graph, node, dim, size)


def _is_made_of_floats(expr: Any) -> bool:
    """Whether an integer expression is one symbol to sizes, and none to the tracer."""
    try:
        return not expr.is_Symbol and named_expr(expr) in map(Expr.symbol, named_expr(expr).symbols)
    except UnsupportedExpr:
        return False


def _read(graph: torch.fx.Graph, tensor: torch.fx.Node, dim: int, size: Any) -> None:
    """Backward is given a size of a tensor."""
    last = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_after(last):
        shown = graph.call_function(aten.sym_size.int, (tensor, dim))
    shown.meta.update(val=size, partitioner_tag="is_forward")
    _keep(graph, shown)


def _keep(graph: torch.fx.Graph, number: torch.fx.Node) -> None:
    """A call in backward that does nothing with a number."""
    (output,) = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        used = graph.call_function(aten.sym_constrain_range.default, (number,))
    used.meta.update(val=None, partitioner_tag="must_be_in_backward")
