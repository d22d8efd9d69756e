"""``torch.cond``: each branch becomes a function of the module, the call of one of them a ``host.cond``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from symshape.dialects.accessors import mark_call
from symshape.dialects.conditions import emit_condition, read_condition
from symshape.dialects.host import CondOp
from symshape.errors import CompileError
from symshape.frontend.bridge.operators import returns_nothing
from symshape.frontend.graph_rewrites.common_subexpressions import common_subexpressions
from symshape.frontend.graph_rewrites.draw_order import draws
from symshape.frontend.importer.fake_values import bind, check_replaced, define_unbacked, is_new_symbol, type_of
from symshape.frontend.importer.traced_symbols import size_expr
from symshape.prover.numbers.condition import Condition, any_of, at_least, equals, negation
from symshape.prover.numbers.expr import Expr, maximum, minimum
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr

if TYPE_CHECKING:
    from symshape.frontend.importer.import_fx import Importer


@dataclass(frozen=True)
class Branch:
    """One branch: its graph, the name of its function, what its predicate says of sizes (None: nothing), and which of
    its outputs the function returns."""

    graph: torch.fx.GraphModule
    name: str
    assumed: Condition | None
    outputs: tuple[int, ...]

    @property
    def returned(self) -> list[Any]:
        """What the graph returns at ``outputs``: nodes, or integers that every call returns."""
        items: Any = next(iter(self.graph.graph.find_nodes(op="output"))).args[0]
        return [items[i] for i in self.outputs]


ImportFunction = Callable[["Importer", Branch], None]


class _Unsupported(Exception):
    """The call has to stay a library call."""


def import_cond(importer: Importer, node: torch.fx.Node, import_function: ImportFunction) -> list[Any] | None:
    """The values of a ``cond`` node's results; None where it has to be a library call, and nothing was written.

    ``import_function`` adds a branch to the module. A predicate over sizes holds in the true branch, its negation in
    the false one, and neither anywhere else. Sizes in which the branches differ are new symbols, of which is known
    that they are one of the two.
    """
    before = len(importer.module.body.operations)
    try:
        predicate, graphs, operands = _read(importer, node)
        fakes = list(node.meta["val"])
        results, kept = _results(importer, fakes)
        condition = (
            None if isinstance(predicate.type, ir.RankedTensorType) else read_condition(importer.sizes, predicate)
        )
        assumed = (None, None) if condition is None else (condition, negation(condition))
        branches = []
        for (name, graph), one in zip(graphs, assumed):
            # Named when the functions of conds in the branch before are there.
            branch = Branch(graph, importer.free_name(name), one, tuple(kept))
            import_function(importer, branch)
            branches.append(branch)
        true, false = (branch.name for branch in branches)
        op = CondOp(predicate, true, false, operands, [type_of(fakes[i]) for i in kept])
        if draws(node):
            mark_call(op, draws=True)
    except (_Unsupported, UnsupportedExpr, CompileError):
        for function in list(importer.module.body.operations)[before:]:
            function.operation.erase()
        return None
    for i, result in zip(kept, op.operation.results):
        results[i] = result
    new = [
        (i, d)
        for i in kept
        if isinstance(fakes[i], torch.Tensor)
        for d, size in enumerate(fakes[i].size())
        if is_new_symbol(importer, size_expr(size))
    ]
    defined = define_unbacked(importer, fakes, kept, op.operation, results)
    check_replaced(importer, node, dict(zip(kept, op.operation.results)), defined)
    for i, d in new:
        sizes = [_size_of(branch.returned[kept.index(i)], d) for branch in branches]
        _assume_merged(importer, size_expr(fakes[i].size(d)), sizes)
    for i, result in zip(kept, op.operation.results):
        bind(importer, result, fakes[i], op.operation.location)
    return results


def _read(importer: Importer, node: torch.fx.Node) -> tuple[ir.Value, list[tuple[str, Any]], list[ir.Value]]:
    """The predicate, the branches by name, and the operands that both get."""
    predicate, *branches, arguments = node.args
    values = importer.values
    graphs = []
    for branch in branches:
        graph = values[branch].value if isinstance(branch, torch.fx.Node) else branch
        if not isinstance(graph, torch.fx.GraphModule):
            raise _Unsupported
        name = branch.target if isinstance(branch, torch.fx.Node) else "branch"
        graphs.append((str(name), graph))
    given: Any = arguments
    # An integer that no symbol stands for is part of the traced branches, which do not read their argument.
    left_out = [i for i, a in enumerate(given) if type(a) is int and all(_is_unread(graph, i) for _, graph in graphs)]
    graphs = [(name, _without(common_subexpressions(graph), left_out)) for name, graph in graphs]
    if not all(_is_traced(graph) for _, graph in graphs):
        raise _Unsupported
    operands = [
        values.get(a) if isinstance(a, torch.fx.Node) else _number(importer, a)
        for a in (predicate, *(a for i, a in enumerate(given) if i not in left_out))
    ]
    if not all(isinstance(v, ir.Value) for v in operands):
        raise _Unsupported
    return operands[0], graphs, operands[1:]


def _is_unread(graph: torch.fx.GraphModule, position: int) -> bool:
    """Whether an argument of a branch has no value and no readers."""
    node = graph.graph.find_nodes(op="placeholder")[position]
    return "val" not in node.meta and not node.users


def _without(graph: torch.fx.GraphModule, positions: list[int]) -> torch.fx.GraphModule:
    """A graph of our own, with fewer arguments."""
    nodes = graph.graph.find_nodes(op="placeholder")
    for position in positions:
        graph.graph.erase_node(nodes[position])
    return graph


def _is_traced(graph: torch.fx.GraphModule) -> bool:
    """Whether every value is known. What returns nothing has none: assertions on data-dependent sizes."""
    return all(
        "val" in node.meta or _returns_nothing(node)
        for node in graph.graph.nodes
        if node.op in ("placeholder", "call_function")
    )


def _returns_nothing(node: torch.fx.Node) -> bool:
    return returns_nothing(node.target)


def _number(importer: Importer, value: Any) -> ir.Value | None:
    return importer.sizes.value(value) if type(value) is int else None


def _results(importer: Importer, fakes: list[Any]) -> tuple[list[Any], list[int]]:
    """What is known of the results before the call, and the positions of those that the call makes."""
    results: list[Any] = [None] * len(fakes)
    kept = []
    for i, fake in enumerate(fakes):
        if isinstance(fake, torch.Tensor) and isinstance(type_of(fake), ir.RankedTensorType):
            kept.append(i)
        elif isinstance(fake, (int, torch.SymInt)) and not isinstance(fake, bool):
            expr = size_expr(fake)
            if all(Expr.symbol(name) in importer.sizes for name in expr.symbols):
                results[i] = importer.sizes.value(expr)
            elif is_new_symbol(importer, expr):
                kept.append(i)
            else:
                raise _Unsupported
        elif fake is not None:
            raise _Unsupported
    return results, kept


def _size_of(returned: Any, dim: int) -> Expr:
    return size_expr(returned.meta["val"].size(dim))


def _assume_merged(importer: Importer, size: Expr, sizes: list[Expr]) -> None:
    """A size of a result is that of one of the branches. Nothing is known where that is computed in the branch."""
    if not all(Expr.symbol(name) in importer.sizes for one in sizes for name in one.symbols):
        return
    low, high = minimum(*sizes), maximum(*sizes)
    for fact in (any_of(*(equals(size, one) for one in sizes)), at_least(size, low), at_least(high, size)):
        ir.Operation.create("symshape.assume", [], [emit_condition(importer.sizes, fact)])
