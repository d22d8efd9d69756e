"""Imports ``while_loop``, ``scan``, ``associative_scan`` and ``map``: their functions become functions of the module.

``host.while``, ``host.scan`` and ``host.associative_scan`` call these.

A function is called with tensors of one layout at every step: operands of the operator, and values that its body
carries to the next step, are copied if they have other strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from symshape.dialects.host import AssociativeScanOp, ScanOp, WhileOp
from symshape.frontend.importer.fake_values import bind, check_replaced, define_unbacked, is_new_symbol, type_of
from symshape.frontend.importer.subgraphs import (
    ImportFunction,
    Kept,
    NamedGraph,
    Subgraph,
    check_known,
    copied,
    inputs_of,
    layout_of_copy,
    no_function_left,
    operands_of,
    read_graphs,
)
from symshape.frontend.importer.traced_symbols import layout_of, size_expr

if TYPE_CHECKING:
    from symshape.frontend.importer.import_fx import Importer


def import_while(importer: Importer, node: torch.fx.Node, import_function: ImportFunction) -> list[Any]:
    """The values of the results of ``while_loop`` or ``while_loop_stack_output``. Kept where it has to be a library
    call, and then nothing was written."""
    condition, body, carried, additional = (_listed(one) for one in node.args)
    stacked = str(node.target) == "while_loop_stack_output"
    with no_function_left(importer):
        if node.kwargs:
            raise Kept("its function writes to an argument")
        graphs, given = read_graphs(importer, [condition, body], [*carried, *additional], kept=len(carried))
        _check_results(importer, node, stacked)
        operands = _operands(importer, given, graphs[1], slices=range(0))
        names = _import_functions(importer, graphs, len(carried), import_function)
    values = [copied(importer, *one) for one in operands]
    types = [type_of(fake) for fake in node.meta["val"]]
    op = WhileOp(names[0], names[1], len(carried), values, types, stacked=stacked).operation
    return _results(importer, node, op)


def import_scan(importer: Importer, node: torch.fx.Node, import_function: ImportFunction) -> list[Any]:
    """The values of the results of ``scan``, or of ``map_impl``, which carries nothing. Kept where it has to be a
    library call, and then nothing was written."""
    body, *rest = (_listed(one) for one in node.args)
    carried, sliced, additional = rest if len(rest) == 3 else ([], *rest)
    count, slices = len(carried), range(len(carried), len(carried) + len(sliced))
    with no_function_left(importer):
        graphs, given = read_graphs(importer, [body], [*carried, *sliced, *additional], kept=slices.stop)
        _check_results(importer, node, stacked=False)
        operands = _operands(importer, given, graphs[0], slices)
        names = _import_functions(importer, graphs, count, import_function)
    values = [copied(importer, *one) for one in operands]
    types = [type_of(fake) for fake in node.meta["val"]]
    op = ScanOp(names[0], count, len(slices), values, types).operation
    return _results(importer, node, op)


def import_associative_scan(importer: Importer, node: torch.fx.Node, import_function: ImportFunction) -> list[Any]:
    """The values of the results of ``associative_scan``. Kept where it has to be a library call, and then nothing was
    written."""
    combine, xs, additional = (_listed(one) for one in node.args)
    count = len(xs)
    with no_function_left(importer):
        # Its function takes the slices of results, which are like those of operands, first.
        (graph,), given = read_graphs(importer, [combine], [*xs, *xs, *additional], kept=2 * count)
        _check_results(importer, node, stacked=False)
        operands = _operands(importer, given, graph, range(2 * count))[count:]
        slices = inputs_of(graph[0])[:count]
        if any(layout_of_copy(importer, fake, like, sliced=True) for fake, like in zip(node.meta["val"], slices)):
            raise Kept("slices of its results have other strides than those that its function was traced with")
        name = importer.free_name(graph[1])
        import_function(importer, Subgraph(graph[0], name, like=tuple(slices)))
    values = [copied(importer, *one) for one in operands]
    types = [type_of(fake) for fake in node.meta["val"]]
    return _results(importer, node, AssociativeScanOp(name, count, values, types).operation)


def _listed(argument: Any) -> Any:
    return list(argument) if isinstance(argument, (list, tuple)) else argument


def _operands(
    importer: Importer, given: Sequence[Any], body: NamedGraph, slices: range
) -> list[tuple[ir.Value, Any, Any]]:
    """For each operand its value, the layout of the copy that it needs (None: no copy), and its fake value."""
    values, fakes = operands_of(importer, given), [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in given]
    layouts = [
        layout_of_copy(importer, fake, like, sliced=i in slices)
        for i, (fake, like) in enumerate(zip(fakes, inputs_of(body[0]), strict=True))
    ]
    return list(zip(values, layouts, fakes, strict=True))


def _import_functions(
    importer: Importer, graphs: Sequence[NamedGraph], carried: int, import_function: ImportFunction
) -> list[str]:
    """The names of the functions. The last is the body: values that it carries get the layout of its arguments."""
    names = []
    for graph, name in graphs:
        is_body = graph is graphs[-1][0]
        like = tuple(inputs_of(graph)[:carried]) if is_body else ()
        # Named when the functions of operators in the graph before are there.
        names.append(importer.free_name(name))
        import_function(importer, Subgraph(graph, names[-1], like=like))
    return names


def _check_results(importer: Importer, node: torch.fx.Node, stacked: bool) -> None:
    """Kept if a result is neither a tensor nor an integer, or has a size that only the function knows. ``stacked``:
    results with the number of steps as a size, which is known after the loop."""
    for fake in node.meta["val"]:
        if isinstance(fake, torch.Tensor) and isinstance(type_of(fake), ir.RankedTensorType):
            layout = layout_of(fake)
            assert layout is not None  # it has a type
            check_known(importer, layout[0][stacked:])
        elif not (isinstance(fake, torch.SymInt) and is_new_symbol(importer, size_expr(fake))):
            raise Kept("it returns what is neither a tensor nor an integer of its own")


def _results(importer: Importer, node: torch.fx.Node, op: ir.Operation) -> list[Any]:
    fakes = list(node.meta["val"])
    importer.mark(op, node)
    results: list[Any] = list(op.results)
    defined = define_unbacked(importer, fakes, list(range(len(fakes))), op, results)
    check_replaced(importer, node, dict(enumerate(op.results)), defined)
    for result, fake in zip(op.results, fakes, strict=True):
        bind(importer, result, fake, op.location)
    return results
