"""Data for the map of the size plane, which shows at which sizes each form or variant of a kernel runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symshape.dialects.plans import PROCESSORS
from symshape.tools.html_report.javascript import javascript, javascript_condition
from symshape.tools.report import Choice, GraphReport, KernelReport


def kernel_choices(kernel: KernelReport, graph: GraphReport) -> dict[str, Any]:
    """For each distinct launch of a kernel, the values of its index arguments; for each form or variant, its condition
    over them as JavaScript, and as text over the graph's symbols."""
    launches: dict[tuple[Any, ...], int] = {}
    for name, arguments in graph.launched:
        if name == kernel.name:
            launches[arguments] = launches.get(arguments, 0) + 1
    symbols, ways = kernel.loops.symbols, kernel.choices
    rows = []
    for arguments, count in launches.items():
        own = dict(zip(symbols, arguments))
        rows.append(
            {
                "count": count,
                "values": [[name, javascript(expr), expr.python()] for name, expr in own.items()],
                "texts": [choice.condition.substitute(own).python() for choice in ways],
            }
        )
    choices = [{"name": c.name, "does": c.does, "js": javascript_condition(c.condition)} for c in ways]
    return {"launches": rows, "choices": choices, "addresses": _addresses(ways, symbols)}


def _addresses(choices: Iterable[Choice], symbols: Iterable[str]) -> list[str]:
    """The symbols of conditions that are no sizes: data addresses, by name."""
    used = {symbol for choice in choices for symbol in choice.condition.symbols}
    return sorted(used - set(symbols) - {PROCESSORS})
