"""Nodes of a traced graph for sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.proxy import GraphAppendingTracer, Proxy
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from symshape.errors import CompileError


def nodes_of_sizes(graph: torch.fx.Graph, sizes: Sequence[int | torch.SymInt]) -> list[int | Node]:
    """Each size as a node at the end of a graph: one that is there, or computed from those for its symbols, or from the
    sizes of arguments. A number stays a number. CompileError for a symbol that the graph does not have."""
    known = {value.node.expr: node for node in graph.nodes if isinstance(value := node.meta.get("val"), torch.SymInt)}
    return [int(size) if isinstance(size, int) else _node(graph, size, known) for size in sizes]


def _node(graph: torch.fx.Graph, size: torch.SymInt, known: dict[Any, Node]) -> int | Node:
    expr = size.node.expr
    if expr.is_Integer:
        return int(expr)
    if expr not in known:
        for symbol in sorted(expr.free_symbols - known.keys(), key=str):
            known[symbol] = _read(graph, symbol)
        tracer, last = GraphAppendingTracer(graph), len(graph.nodes)
        symbols = {one: Proxy(known[one], tracer) for one in expr.free_symbols}
        made: Any = sympy_interp(PythonReferenceAnalysis, symbols, expr)
        for node in list(graph.nodes)[last:]:
            node.meta["val"] = node.target(*torch.fx.map_arg(node.args, lambda one: one.meta["val"]))
        known[expr] = made.node
    return known[expr]


def _read(graph: torch.fx.Graph, symbol: Any) -> Node:
    """A node that reads a symbol off the argument that has it as a size."""
    for argument in graph.find_nodes(op="placeholder"):
        value = argument.meta.get("val")
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                node = graph.call_function(torch.ops.aten.sym_size.int, (argument, dim))
                node.meta["val"] = size
                return node
    raise CompileError(
        f"no argument of backward has the value of {symbol}",
        next_step="report the function; or detach the results that backward does not reach",
    )
