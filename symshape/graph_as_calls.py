"""A traced graph that is run as it is, operator by operator: what is left when it cannot be compiled.

Every operator of the graph is a library call, as under PyTorch's backend ``aot_eager``. What other graphs were promised
holds: results have the strides that were traced (a compiled backward graph reads saved tensors by them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from symshape.codegen.entry_guards import EntryGuards, SymbolRange
from symshape.codegen.guard_stub import Constraint
from symshape.codegen.program_text import LibraryCall
from symshape.dialects.sizes import Layout
from symshape.errors import CompileError
from symshape.frontend.guards import open_guards
from symshape.frontend.symbols import collect_symbols, layout_of, size_expr
from symshape.prover.expr import Expr
from symshape.report import GraphReport
from symshape.runtime.program import target_name
from symshape.runtime.promised_results import with_layout


@dataclass
class GraphAsCalls:
    """Like ``symshape.compiler.Compiled``: ``run(args)`` takes the flat argument list, and clears it."""

    run: Callable[[list[Any]], Any]
    report: GraphReport
    graph: torch.fx.GraphModule
    env: Any

    @cached_property
    def entry(self) -> EntryGuards:
        """What the graph needs of its arguments: their layouts, and the guards that were made while it was traced."""
        return traced_entry(_arguments(self.graph), self.env)


def traced_entry(fakes: Sequence[Any], env: Any) -> EntryGuards:
    """What a trace needs of arguments that look like these: layouts, ranges of symbols, guards."""
    rows = collect_symbols(list(fakes), env)
    guards = open_guards(env, {Expr.symbol(row.name) for row in rows})
    return EntryGuards(
        tuple(_layout(fake) for fake in fakes),
        tuple(SymbolRange(row.name, row.binding, row.min, row.max, 1) for row in rows),
        tuple(Constraint(one.condition, "decided while tracing", f"{one.file}:{one.line}") for one in guards),
    )


def graph_as_calls(gm: torch.fx.GraphModule, env: Any, *, kind: str, target: str) -> GraphAsCalls:
    """The graph as something to be run. CompileError where the strides of a result cannot be known at run time."""
    fakes = _arguments(gm)
    (output,) = gm.graph.find_nodes(op="output")
    results = [node.meta.get("val") if isinstance(node, torch.fx.Node) else node for node in output.args[0]]
    read_symbols, layouts = _symbol_reader(fakes, env), _layout_function(fakes, results, env)

    def run(args: list[Any]) -> list[Any]:
        given = tuple(args)
        args.clear()
        symbols = read_symbols(given)
        computed = list(gm(*given))
        for i, layout in enumerate(layouts(symbols, computed)):
            if layout is not None:
                computed[i] = with_layout(computed[i], *layout)
        return computed

    run._boxed_call = True  # type: ignore[attr-defined]
    called = [LibraryCall(target_name(node.target), ()) for node in gm.graph.nodes if node.op == "call_function"]
    rows = collect_symbols(fakes, env)
    report = GraphReport(kind=kind, target=target, symbols=rows, called=called, program_source=gm.code)
    return GraphAsCalls(run, report, gm, env)


def _arguments(gm: torch.fx.GraphModule) -> list[Any]:
    return [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]


def _layout(fake: Any) -> Layout | None:
    found = layout_of(fake) if isinstance(fake, torch.Tensor) else None
    return None if found is None else Layout(tuple(found[0]), tuple(found[1]), found[2])


def _symbol_reader(fakes: Sequence[Any], env: Any) -> Callable[[Sequence[Any]], dict[str, int]]:
    """A function from the arguments to the values of their symbols."""
    lines = [f"{row.name!r}: {_reading(row.binding)}" for row in collect_symbols(list(fakes), env)]
    names = ", ".join(f"arg{i}" for i in range(len(fakes)))
    made: Callable[..., dict[str, int]] = eval(f"lambda {names}: {{{', '.join(lines)}}}")  # noqa: S307 - our own text
    return lambda args: made(*args)


def _reading(binding: str) -> str:
    return binding.replace(".offset", ".storage_offset()")


def _layout_function(
    fakes: Sequence[Any], results: Sequence[Any], env: Any
) -> Callable[[dict[str, int], Sequence[Any]], list[tuple[tuple[int, ...], tuple[int, ...]] | None]]:
    """A function from symbols of arguments and computed results to the (sizes, strides) that each result must have.

    Data-dependent symbols are read off the results: sizes that are one, and integers.
    """
    layouts = [_layout(result) for result in results]
    known = {row.name for row in collect_symbols(list(fakes), env)}
    shown: dict[str, tuple[int, int | None]] = {}
    for i, (result, layout) in enumerate(zip(results, layouts)):
        exprs = [(None, size_expr(result))] if isinstance(result, torch.SymInt) else list(enumerate(layout.sizes)) if (
            layout is not None) else []  # fmt: skip
        for dim, expr in exprs:
            if len(expr.symbols) == 1 and expr == Expr.symbol(next(iter(expr.symbols))):
                shown.setdefault(next(iter(expr.symbols)), (i, dim))
    for layout in layouts:
        missing = {n for e in layout.strides for n in e.symbols} - known - set(shown) if layout is not None else set()
        if missing:
            raise CompileError(f"no result shows {', '.join(sorted(missing))}, which strides of a result depend on")

    def layouts_now(symbols: dict[str, int], computed: Sequence[Any]) -> list[Any]:
        for name, (i, dim) in shown.items():
            if name not in symbols:
                symbols[name] = int(computed[i]) if dim is None else computed[i].size(dim)
        found: list[Any] = []
        for result, layout in zip(computed, layouts):
            if layout is None or not isinstance(result, torch.Tensor) or result.layout != torch.strided:
                found.append(None)
                continue
            found.append((tuple(result.size()), tuple(e.evaluate(symbols) for e in layout.strides)))
        return found

    return layouts_now
