"""A graph as data for the page's script: symbols, steps, buffers and kernels, with expressions as JavaScript."""

from __future__ import annotations

from collections import Counter
from typing import Any

from symshape.frontend.importer.specialisations import plain_source
from symshape.prover.numbers.expr import Expr
from symshape.tools.html_report.javascript import javascript
from symshape.tools.html_report.program_steps import Program, read_program
from symshape.tools.html_report.size_map import kernel_choices
from symshape.tools.html_report.sources import SourceLines
from symshape.tools.report import PROCESSORS, GraphReport
from symshape.tools.traffic import call_bytes_expr, kernel_bytes_expr

LARGEST = 1 << 16  # upper limit of a size slider


def graph_data(graph: GraphReport, lines: SourceLines) -> dict[str, Any]:
    """A graph as plain data. Byte counts are expressions that the script evaluates at the sizes chosen on the page."""
    program = read_program(graph)
    kernels = [_kernel(kernel, graph) for kernel in graph.kernels]
    calls = _calls_of_steps(graph, program)
    return {
        "symbols": _symbols(graph, program),
        "kernels": kernels,
        "steps": [_step(step, calls.get(i), lines) for i, step in enumerate(program.steps)],
        "buffers": [_buffer(buffer) for buffer in program.buffers],
        "given": _expression(program.given),
        "totals": _totals(graph, program),
        "processors": PROCESSORS if graph.target == "triton" else 0,
    }


def _expression(expr: Expr) -> dict[str, str]:
    return {"text": expr.python(), "js": javascript(expr)}


def _calls_of_steps(graph: GraphReport, program: Program) -> dict[int, Any]:
    """The library call of each step of kind "call". The report lists main's calls first, then those of each branch."""
    numbers = [i for i, step in enumerate(program.steps) if step.kind == "call"]
    numbers.sort(key=lambda i: program.functions.index(program.steps[i].branch))
    return dict(zip(numbers, graph.called, strict=bool(numbers)))


def _symbols(graph: GraphReport, program: Program) -> list[dict[str, Any]]:
    """The symbols in sizes of launches, calls and buffers. Unbacked ones have neither source nor hint."""
    exprs = [e for _, arguments in graph.launched for e in arguments]
    exprs += [e for call in graph.called for sizes, _ in call.buffers for e in sizes]
    exprs += [e for buffer in program.buffers for e in buffer.sizes]
    used = {symbol for expr in exprs for symbol in expr.symbols}
    rows = []
    for row in graph.symbols:
        low, high = max(row.min, 0), min(row.max, LARGEST)
        value = row.hint if row.hint >= 0 else max(low, 1)
        source = plain_source(row.source)
        rows.append({"name": row.name, "source": source, "min": low, "max": max(high, value), "value": value})
    known = {row["name"] for row in rows}
    for name in sorted(used - known):
        rows.append({"name": name, "source": "known when it runs", "min": 0, "max": LARGEST, "value": 16})
    return rows


def _kernel(kernel: Any, graph: GraphReport) -> dict[str, Any]:
    launches = Counter(name for name, _ in graph.launched)[kernel.name]
    return {
        "name": kernel.name,
        "kind": kernel.kind,
        "launches": launches,
        "bytes": _expression(kernel_bytes_expr(kernel.loops)),
        "symbols": list(kernel.loops.symbols),
        "map": kernel_choices(kernel, graph),
    }


def _step(step: Any, call: Any, lines: SourceLines) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": step.kind, "name": step.name, "branch": step.branch}
    found["line"] = lines.number(*step.line) if step.line else None
    if step.kind == "kernel":
        found["arguments"] = [_expression(e) for e in step.arguments]
    elif step.kind == "call":
        found["bytes"] = _expression(call_bytes_expr(call))
    return found


def _buffer(buffer: Any) -> dict[str, Any]:
    sizes = " x ".join(size.python() for size in buffer.sizes) or "1"
    return {
        "shape": f"{sizes} {buffer.dtype}",
        "bytes": _expression(buffer.bytes),
        "first": buffer.first,
        "last": buffer.last,
    }


def _totals(graph: GraphReport, program: Program) -> dict[str, Any]:
    """Bytes summed over all launches and over all calls, as expressions over the graph's symbols."""
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    moved, called = Expr.const(0), Expr.const(0)
    for (name, arguments), count in Counter(graph.launched).items():
        loops = kernels[name].loops
        moved += kernel_bytes_expr(loops).substitute(dict(zip(loops.symbols, arguments))) * count
    for call in graph.called:
        called += call_bytes_expr(call)
    return {
        "kernels": _expression(moved),
        "calls": _expression(called),
        "launches": graph.launches,
        "branches": any(s.branch for s in program.steps),
    }
