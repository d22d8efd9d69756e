"""Imports graphs of higher-order operators as functions of the module: shared by branches and bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from symshape.dialects.accessors import mark_call
from symshape.dialects.host import CallOp
from symshape.dialects.sizes import Layout
from symshape.errors import CompileError
from symshape.frontend.bridge.operators import returns_nothing
from symshape.frontend.graph_rewrites.common_subexpressions import common_subexpressions
from symshape.frontend.importer.fake_values import bind_layout, type_of
from symshape.frontend.importer.traced_symbols import layout_of
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr

if TYPE_CHECKING:
    from symshape.frontend.importer.import_fx import Importer


@dataclass(frozen=True)
class Subgraph:
    """A branch or the body of a loop: its graph, the name of its function, and its results.

    ``assumed``: the predicate of a branch, as facts about sizes (None: none). ``outputs``: indices of the graph's
    results that are returned (None: all). ``like``: tensors whose strides the first outputs get (None: their own).
    """

    graph: torch.fx.GraphModule
    name: str
    assumed: Condition | None = None
    outputs: tuple[int, ...] | None = None
    like: tuple[Any, ...] = ()

    @property
    def returned(self) -> list[Any]:
        """The graph's outputs at positions ``outputs``: nodes, or integers that every call returns."""
        items = returned_items(self.graph)
        return items if self.outputs is None else [items[i] for i in self.outputs]


ImportFunction = Callable[["Importer", Subgraph], None]
NamedGraph = tuple[torch.fx.GraphModule, str]


class Kept(Exception):
    """Raised if an operator must stay a library call; the text is the reason."""


def returned_items(graph: torch.fx.GraphModule) -> list[Any]:
    """The outputs of a graph, as a list."""
    items: Any = next(iter(graph.graph.find_nodes(op="output"))).args[0]
    return list(items) if isinstance(items, (list, tuple)) else [items]


@contextmanager
def no_function_left(importer: Importer) -> Iterator[None]:
    """On Kept, UnsupportedExpr or CompileError inside, removes the functions that were added inside, and raises
    Kept."""
    before = len(importer.module.body.operations)
    try:
        yield
    except (Kept, UnsupportedExpr, CompileError) as error:
        for function in list(importer.module.body.operations)[before:]:
            function.operation.erase()
        raise Kept(error.what if isinstance(error, CompileError) else str(error)) from error


def inputs_of(graph: torch.fx.GraphModule) -> list[Any]:
    """The fake values of a graph's arguments."""
    return [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]


def read_graphs(
    importer: Importer, graphs: Sequence[Any], given: Any, kept: int = 0
) -> tuple[list[NamedGraph], list[Any]]:
    """(graph, name of its function) of each argument that is a graph, and ``given`` without operands that no graph
    reads.

    Integers without a symbol are constants of the traced graphs, which do not read their argument. The first ``kept``
    of ``given`` stay in any case. Kept if an argument is no graph, or has values without fake values.
    """
    found = []
    for graph in graphs:
        held = importer.values[graph].value if isinstance(graph, torch.fx.Node) else graph
        if not isinstance(held, torch.fx.GraphModule):
            raise Kept("its function is not a traced graph")
        found.append((held, str(graph.target) if isinstance(graph, torch.fx.Node) else "branch"))
    numbers = [i for i, a in enumerate(given) if i >= kept and type(a) is int]
    left_out = [i for i in numbers if all(_is_unread(graph, i) for graph, _ in found)]
    read = [(_without(common_subexpressions(graph), left_out), name) for graph, name in found]
    for graph, _ in read:
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "call_function") and "val" not in node.meta and not _returns_nothing(node):
                raise Kept(f"there is no fake result of {node.target} in its function")
    return read, [a for i, a in enumerate(given) if i not in left_out]


def operands_of(importer: Importer, given: Sequence[Any]) -> list[ir.Value]:
    """The IR values of arguments: nodes and integers. Kept where one has none."""
    values = [
        importer.values.get(a)
        if isinstance(a, torch.fx.Node)
        else (importer.sizes.value(a) if type(a) is int else None)
        for a in given
    ]
    if not all(isinstance(value, ir.Value) for value in values):
        raise Kept("an argument is neither a tensor nor a size")
    return [value for value in values if isinstance(value, ir.Value)]


def layout_of_copy(importer: Importer, fake: Any, like: Any, *, sliced: bool = False) -> Layout | None:
    """The layout of the copy that gives a tensor the strides of ``like``; None where it has those, and for numbers.

    ``sliced``: ``like`` is a slice of it along its first dim. Kept where it cannot be given those strides.
    """
    if not isinstance(like, torch.Tensor):
        return None
    given, wanted = (layout_of(fake) if isinstance(fake, torch.Tensor) else None), layout_of(like)
    if given is None or wanted is None or not isinstance(type_of(like), ir.RankedTensorType):
        raise Kept("an operand has no strides, or a dtype that IR does not have")
    if sliced and (fake.is_neg() or fake.is_conj()):
        raise Kept("an operand has the negative or conjugate bit")
    sizes, strides, _ = wanted
    if given[1][sliced:] == strides:
        return None
    if not _is_dense(sizes, strides):
        raise Kept("a carried tensor is not dense")
    check_known(importer, (*sizes, *strides))
    if sliced:
        sizes, strides = [given[0][0], *sizes], [product(sizes), *strides]
    return Layout(tuple(sizes), tuple(strides), Expr.const(0))


def copied(importer: Importer, value: ir.Value, layout: Layout | None, fake: Any) -> ir.Value:
    """A copy of a tensor with this layout, or the tensor itself for None."""
    if layout is None:
        return value
    op = CallOp("aten.clone.default", "($0,)", [value], [value.type]).operation
    mark_call(op, fresh=True)
    bind_layout(importer, op.results[0], layout, str(fake.device), op.location)
    result: ir.Value = op.results[0]
    return result


def check_known(importer: Importer, exprs: Sequence[Expr]) -> None:
    """Raises `Kept` if a size is known only inside of the operator's function."""
    for expr in exprs:
        for name in expr.symbols:
            if Expr.symbol(name) not in importer.sizes:
                raise Kept(f"size {name} exists only inside of its function")


def _is_unread(graph: torch.fx.GraphModule, position: int) -> bool:
    """Whether an argument of a graph has no value and no readers."""
    node = graph.graph.find_nodes(op="placeholder")[position]
    return "val" not in node.meta and not node.users


def _without(graph: torch.fx.GraphModule, positions: list[int]) -> torch.fx.GraphModule:
    """A copy of a graph without the arguments at these positions."""
    nodes = graph.graph.find_nodes(op="placeholder")
    for position in positions:
        graph.graph.erase_node(nodes[position])
    return graph


def _returns_nothing(node: torch.fx.Node) -> bool:
    """Assertions on data-dependent sizes."""
    return returns_nothing(node.target)


def _is_dense(sizes: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Whether the elements are contiguous in memory, in some order of the dims."""
    waiting = [pair for pair in zip(sizes, strides) if pair[0].as_int() != 1]
    count = Expr.const(1)
    while waiting:
        found = next((pair for pair in waiting if pair[1] == count), None)
        if found is None:
            return False
        waiting.remove(found)
        count = count * found[0]
    return True
