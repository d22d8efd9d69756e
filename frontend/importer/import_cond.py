"""Imports ``torch.cond``: each branch becomes a function of the module, the call a ``host.cond``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from symshape.dialects.conditions import emit_condition, read_condition
from symshape.dialects.host import CondOp
from symshape.frontend.importer.fake_values import bind, check_replaced, define_unbacked, is_new_symbol, type_of
from symshape.frontend.importer.subgraphs import (
    ImportFunction,
    Kept,
    NamedGraph,
    Subgraph,
    no_function_left,
    operands_of,
    read_graphs,
)
from symshape.frontend.importer.traced_symbols import size_expr
from symshape.prover.numbers.condition import any_of, at_least, equals, negation
from symshape.prover.numbers.expr import Expr, maximum, minimum

if TYPE_CHECKING:
    from symshape.frontend.importer.import_fx import Importer


def import_cond(importer: Importer, node: torch.fx.Node, import_function: ImportFunction) -> list[Any]:
    """The values of a ``cond`` node's results. Raises Kept, with nothing emitted, if it must stay a library call.

    ``import_function`` adds a branch to the module. A predicate over sizes is a fact in the true branch, its negation
    in the false one, and neither anywhere else. Sizes in which the branches differ are new symbols, with the fact that
    each is one of the two.
    """
    predicate, true, false, arguments = node.args
    fakes = list(node.meta["val"])
    with no_function_left(importer):
        graphs, given = read_graphs(importer, [true, false], arguments)
        condition, *operands = operands_of(importer, [predicate, *given])
        results, kept = _results(importer, fakes)
        branches = _import_branches(importer, condition, graphs, tuple(kept), import_function)
    names = [branch.name for branch in branches]
    op = CondOp(condition, names[0], names[1], operands, [type_of(fakes[i]) for i in kept]).operation
    importer.mark(op, node)
    for i, result in zip(kept, op.results):
        results[i] = result
    new = [
        (i, d)
        for i in kept
        if isinstance(fakes[i], torch.Tensor)
        for d, size in enumerate(fakes[i].size())
        if is_new_symbol(importer, size_expr(size))
    ]
    defined = define_unbacked(importer, fakes, kept, op, results)
    check_replaced(importer, node, dict(zip(kept, op.results)), defined)
    for i, d in new:
        sizes = [_size_of(branch.returned[kept.index(i)], d) for branch in branches]
        _assume_merged(importer, size_expr(fakes[i].size(d)), sizes)
    for i, result in zip(kept, op.results):
        bind(importer, result, fakes[i], op.location)
    return results


def _import_branches(
    importer: Importer,
    condition: ir.Value,
    graphs: Sequence[NamedGraph],
    outputs: tuple[int, ...],
    import_function: ImportFunction,
) -> list[Subgraph]:
    known = None if isinstance(condition.type, ir.RankedTensorType) else read_condition(importer.sizes, condition)
    branches = []
    for (graph, name), assumed in zip(graphs, (None, None) if known is None else (known, negation(known))):
        # Named when the functions of conds in the branch before are there.
        branch = Subgraph(graph, importer.free_name(name), assumed, outputs)
        import_function(importer, branch)
        branches.append(branch)
    return branches


def _results(importer: Importer, fakes: list[Any]) -> tuple[list[Any], list[int]]:
    """The symbols of results that are known before the call, and the positions of new ones."""
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
                raise Kept("it returns an integer computed from sizes that exist only inside of its function")
        elif fake is not None:
            raise Kept("it returns what is neither a tensor nor an integer")
    return results, kept


def _size_of(returned: Any, dim: int) -> Expr:
    return size_expr(returned.meta["val"].size(dim))


def _assume_merged(importer: Importer, size: Expr, sizes: list[Expr]) -> None:
    """Emits the fact that a size of a result is that of one of the branches. No fact if a branch computes it."""
    if not all(Expr.symbol(name) in importer.sizes for one in sizes for name in one.symbols):
        return
    low, high = minimum(*sizes), maximum(*sizes)
    for fact in (any_of(*(equals(size, one) for one in sizes)), at_least(size, low), at_least(high, size)):
        ir.Operation.create("symshape.assume", [], [emit_condition(importer.sizes, fact)])
