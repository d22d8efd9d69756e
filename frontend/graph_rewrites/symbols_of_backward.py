"""Saves symbols for backward that no saved tensor has as a size.

A Dynamo graph has an argument for each symbol. A graph traced without Dynamo reads sizes from its tensors, and the
partitioner may save a product of two sizes, and no tensor that has either of them as a size. Sizes in backward are
expressions over symbols, so backward needs the value of each.

The same holds of integers computed via floats (``int(1.25 * n)``): in sizes each is a symbol of its own.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import computes_in_backward, tangents_of
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.importer.traced_symbols import named_expr
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr

aten: Any = torch.ops.aten


def keep_symbols(joint: torch.fx.GraphModule) -> None:
    """Makes backward read each symbol that occurs in a computed size of the joint graph and is no argument of it, in
    place. Where backward computes nothing it reads none: the partitioner would save an input for its sizes, and the
    program may write to that."""
    if not computes_in_backward(joint):
        return
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
    tangents = tangents_of(joint)
    for node in joint.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if node in tangents or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        for dim, size in enumerate(value.size()):
            symbol = expression_of(size) if isinstance(size, torch.SymInt) else None
            if symbol in missing - arguments:
                arguments.add(symbol)
                _read(joint.graph, node, dim, size)


def _is_made_of_floats(expr: Any) -> bool:
    """Whether an integer expression over floats stands for one symbol in sizes, although the tracer has no symbol for
    it."""
    try:
        return not expr.is_Symbol and named_expr(expr) in map(Expr.symbol, named_expr(expr).symbols)
    except UnsupportedExpr:
        return False


def _read(graph: torch.fx.Graph, tensor: torch.fx.Node, dim: int, size: Any) -> None:
    """Inserts a read of a tensor's size into backward."""
    last = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_after(last):
        shown = graph.call_function(aten.sym_size.int, (tensor, dim))
    shown.meta.update(val=size, partitioner_tag="is_forward")
    _keep(graph, shown)


def _keep(graph: torch.fx.Graph, number: torch.fx.Node) -> None:
    """Inserts a call into backward that uses a number, so that the partitioner saves it."""
    (output,) = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        used = graph.call_function(aten.sym_constrain_range.default, (number,))
    used.meta.update(val=None, partitioner_tag="must_be_in_backward")
