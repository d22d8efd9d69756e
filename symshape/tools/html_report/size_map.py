"""Which way of running a kernel is taken at which sizes: conditions for the map over the size plane."""

from __future__ import annotations

from typing import Any

from symshape.tools.html_report.expressions import javascript, javascript_condition
from symshape.tools.report import GraphReport, KernelReport

PROCESSORS = "processors"


def kernel_choices(kernel: KernelReport, graph: GraphReport) -> dict[str, Any]:
    """For the page: by launch with sizes of its own the values of the kernel's index arguments, and for each of the
    ways to run it the condition over them, as JavaScript and as text over the graph's symbols."""
    launches: dict[tuple[Any, ...], int] = {}
    for name, arguments in graph.launched:
        if name == kernel.name:
            launches[arguments] = launches.get(arguments, 0) + 1
    symbols = kernel.loops.symbols
    rows = []
    for arguments, count in launches.items():
        own = dict(zip(symbols, arguments))
        rows.append(
            {
                "count": count,
                "values": [[name, javascript(expr), expr.python()] for name, expr in own.items()],
                "texts": [choice.condition.substitute(own).python() for choice in kernel.choices],
            }
        )
    choices = [
        {"name": c.name, "does": c.does, "js": javascript_condition(c.condition), "text": c.condition.python()}
        for c in kernel.choices
    ]
    return {"launches": rows, "choices": choices, "addresses": _addresses(kernel)}


def _addresses(kernel: KernelReport) -> list[str]:
    """What conditions read of a launch besides sizes."""
    used = {symbol for choice in kernel.choices for symbol in choice.condition.symbols}
    return sorted(used - set(kernel.loops.symbols) - {PROCESSORS})
