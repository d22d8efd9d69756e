"""Runs a traced graph operator by operator, where it cannot be compiled.

Every operator of the graph is a library call, as under PyTorch's backend ``aot_eager``. Promises to other graphs are
kept: results have the strides that were traced (a compiled backward graph reads saved tensors by them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from symshape.artifact.compiled_program import target_name
from symshape.codegen.host.entry_guards import EntryGuards
from symshape.codegen.host.program_text import LibraryCall
from symshape.dialects.sizes import Layout
from symshape.errors import CompileError, ShapeConstraintError
from symshape.frontend.bridge.aot_autograd import takes_boxed_arguments
from symshape.frontend.importer.traced_symbols import SymbolRow, collect_symbols, size_expr
from symshape.prover.numbers.expr import Expr
from symshape.runtime.promised_results import with_layout
from symshape.runtime.slices import call_by_slices
from symshape.runtime.torch_c import first_seen
from symshape.tools.report import GraphReport
from symshape.traced_entry import tensor_layout, traced_entry


@dataclass
class GraphAsCalls:
    """Like ``symshape.compiler.Compiled``: ``run(args)`` takes the flat argument list, and clears it."""

    run: Callable[[list[Any]], Any]
    report: GraphReport
    graph: torch.fx.GraphModule
    env: Any

    @cached_property
    def entry(self) -> EntryGuards:
        """The requirements of the graph on its arguments: their layouts, and the guards of the trace."""
        return traced_entry(_arguments(self.graph), self.env)


def graph_as_calls(gm: torch.fx.GraphModule, env: Any, *, kind: str) -> GraphAsCalls:
    """A callable for the graph. CompileError if the strides of a result cannot be known at run time, or an assertion's
    condition exists in the trace alone (``jit_trace``)."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default):
        condition = node.args[0]
        if isinstance(condition, torch.fx.Node) and not condition.all_input_nodes and condition.op != "placeholder":
            raise CompileError(
                f"an assertion cannot be checked without compiling the graph: {node.args[1]}",
                next_step="mend the failure that is its cause; until then call the function without compiling it",
            )
    fakes = _arguments(gm)
    (output,) = gm.graph.find_nodes(op="output")
    results = [node.meta.get("val") if isinstance(node, torch.fx.Node) else node for node in output.args[0]]
    rows = collect_symbols(fakes, env, all_needed=False)
    read_symbols, layouts = _symbol_reader(rows, len(fakes)), _layout_function(results, {r.name for r in rows})

    def run(args: list[Any]) -> list[Any]:
        given = tuple(args)
        args.clear()
        symbols = read_symbols(given)
        computed = list(gm(*given))
        for i, layout in enumerate(layouts(symbols, computed)):
            if layout is not None:
                computed[i] = with_layout(computed[i], *layout)
        return computed

    takes_boxed_arguments(run)
    called = [LibraryCall(target_name(node.target), ()) for node in gm.graph.nodes if node.op == "call_function"]
    call_by_slices(gm)
    report = GraphReport(kind=kind, target="calls", symbols=rows, called=called, program_source=gm.code)
    return GraphAsCalls(run, report, gm, env)


def _arguments(gm: torch.fx.GraphModule) -> list[Any]:
    return [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]


def _symbol_reader(rows: Sequence[SymbolRow], arguments: int) -> Callable[[Sequence[Any]], dict[str, int]]:
    """A function from the arguments to the values of their symbols."""
    items = ", ".join(f"{row.name!r}: {_reading(row.binding)}" for row in rows)
    names = ", ".join(f"arg{i}" for i in range(arguments))
    made: Callable[..., dict[str, int]] = eval(f"lambda {names}: {{{items}}}")
    return lambda args: made(*args)


def _reading(binding: str) -> str:
    return binding.replace(".offset", ".storage_offset()")


Wanted = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides


def _layout_function(
    results: Sequence[Any], known: set[str]
) -> Callable[[dict[str, int], Sequence[Any]], list[Wanted | None]]:
    """A function from ``known`` symbols and computed results to the sizes and strides that each result must have.

    Strides of a dense result follow from its sizes. Unbacked symbols are read from the results: from sizes and
    integers.
    """
    layouts = [tensor_layout(result) for result in results]
    orders = [_dense_order(result, layout) for result, layout in zip(results, layouts)]
    shown = _shown_by_results(results, layouts)
    for layout, order in zip(layouts, orders):
        if layout is not None and order is None:
            missing = {name for expr in layout.strides for name in expr.symbols} - known - set(shown)
            if missing:
                raise CompileError(
                    f"strides of a result depend on {', '.join(sorted(missing))}, which no result has as a size",
                    next_step="return a contiguous tensor, or one that has this size",
                )

    def layouts_now(symbols: dict[str, int], computed: Sequence[Any]) -> list[Wanted | None]:
        for name, (i, dim) in shown.items():
            if name not in symbols:
                symbols[name] = int(computed[i]) if dim is None else computed[i].size(dim)
        found: list[Wanted | None] = []
        for result, layout, order in zip(computed, layouts, orders):
            if layout is None or not isinstance(result, torch.Tensor) or result.layout != torch.strided:
                found.append(None)
                continue
            sizes = tuple(result.size())
            for size, expr in zip(sizes, layout.sizes, strict=True):
                if symbols.keys() >= expr.symbols and expr.evaluate(symbols) != size:
                    raise ShapeConstraintError(
                        f"a result has the sizes {list(sizes)}, and not those of its fake rule: {list(layout.sizes)}",
                        next_step="correct the rule (torch.library.register_fake), or the operator",
                    )
            strides = [e.evaluate(symbols) for e in layout.strides] if order is None else _dense(sizes, order)
            found.append((sizes, tuple(strides)))
        return found

    return layouts_now


def _shown_by_results(results: Sequence[Any], layouts: Sequence[Layout | None]) -> dict[str, tuple[int, int | None]]:
    """Symbol -> the result, and the dim of it (None: its value), that is the symbol."""
    shown: dict[str, tuple[int, int | None]] = {}
    for i, (result, layout) in enumerate(zip(results, layouts)):
        exprs: list[tuple[int | None, Expr]] = []
        if isinstance(result, torch.SymInt):
            exprs = [(None, size_expr(result))]
        elif layout is not None:
            exprs = list(enumerate(layout.sizes))
        for dim, expr in exprs:
            if len(expr.symbols) == 1 and expr == Expr.symbol(next(iter(expr.symbols))):
                shown.setdefault(next(iter(expr.symbols)), (i, dim))
    return shown


def _dense_order(fake: Any, layout: Layout | None) -> tuple[int, ...] | None:
    """Dims from the fastest to the slowest, where each stride is the product of the sizes of faster dims; else None."""
    if layout is None:
        return None
    hints = [stride if isinstance(stride, int) else first_seen(stride) for stride in fake.stride()]
    if None in hints:
        hints = list(range(len(hints), 0, -1))
    order = sorted(range(len(hints)), key=lambda d: (hints[d], -d))
    step = Expr.const(1)
    for dim in order:
        if layout.strides[dim] != step and layout.sizes[dim].as_int() != 1:
            return None
        step = step * layout.sizes[dim]
    return tuple(order)


def _dense(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    strides, step = [0] * len(sizes), 1
    for dim in order:
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return strides
