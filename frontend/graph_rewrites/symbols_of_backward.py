"""Saves symbols for backward that no saved tensor has as a size.

A Dynamo graph has an argument for each symbol. A graph traced without Dynamo reads sizes from its tensors, and the
partitioner may save a product of two sizes, and no tensor that has either of them as a size. Sizes in backward are
expressions over symbols, so backward needs the value of each.

The same holds of integers computed via floats (``int(1.25 * n)``): in sizes each is a symbol of its own.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.aot_autograd import computes_in_backward, mutated_inputs, tangents_of
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.importer.traced_symbols import named_expr
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr

aten: Any = torch.ops.aten


def keep_symbols(joint: torch.fx.GraphModule) -> None:
    """Makes backward read each symbol that occurs in a computed size that it may need and is no argument of the joint
    graph, in place. Other symbols are not read: the partitioner would save an input for its sizes, and the program may
    write to that. For the same reason they are read of inputs that it does not write to, where there are any."""
    if not computes_in_backward(joint):
        return
    missing: set[Any] = set()
    rounded: dict[Any, torch.fx.Node] = {}
    arguments: set[Any] = set()
    placeholders = joint.graph.find_nodes(op="placeholder")
    tangents = tangents_of(joint)
    if len(tangents) > 1:  # one that is undefined shows no sizes
        missing |= {symbol for one in tangents for symbol in _symbols(one.meta["val"])}
    for node in _needed(joint.graph):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            found = expression_of(value)
            (arguments if node.op == "placeholder" else missing).update(found.free_symbols)
            if node.op == "call_function" and _is_made_of_floats(found):
                rounded.setdefault(found, node)
    for number in rounded.values():
        _keep(joint.graph, number)
    written = set(mutated_inputs(joint))
    for node in sorted((node for node in placeholders if node not in tangents), key=written.__contains__):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        for dim, size in enumerate(value.size()):
            symbol = expression_of(size) if isinstance(size, torch.SymInt) else None
            if symbol in missing - arguments:
                arguments.add(symbol)
                _read(joint.graph, node, dim, size)


def _symbols(value: Any) -> set[Any]:
    """The symbols in the sizes of a tensor."""
    sizes = value.size() if isinstance(value, torch.Tensor) and value.layout == torch.strided else ()
    symbolic: list[Any] = [size for size in sizes if isinstance(size, torch.SymInt)]
    return {symbol for size in symbolic for symbol in expression_of(size).free_symbols}


def _needed(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The arguments, the nodes of backward, and all that they are computed from: what backward may have as a value."""
    needed: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "placeholder" or "backward" in node.meta.get("partitioner_tag", ""):
            needed.add(node)
        if node in needed:
            needed.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in needed]


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
