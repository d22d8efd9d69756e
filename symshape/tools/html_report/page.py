"""Renders the HTML report: converts a report to data and embeds styles, scripts and data in one page."""

from __future__ import annotations

import base64
import json
import platform
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

from symshape.frontend.importer.specialisations import plain_source
from symshape.prover.numbers.facts import INT64_MAX
from symshape.tools.html_report.graph_data import graph_data
from symshape.tools.html_report.libraries import library, template_environment
from symshape.tools.html_report.sources import Highlighter, SourceLines
from symshape.tools.html_report.stages_view import kernels_by_line, stages_data
from symshape.tools.html_report.timeline import GROUPS, compile_seconds, timeline
from symshape.tools.report import GraphReport, Report

_TEMPLATES = Path(__file__).parent / "templates"


def html_page(report: Report, title: str = "") -> str:
    """The page as HTML. OptionError if jinja2 or pygments is missing."""
    highlight = Highlighter()
    lines = SourceLines(highlight)
    environment = template_environment(_TEMPLATES)
    environment.filters["source"] = lines.shown
    graphs = [_graph(number, graph, lines, highlight) for number, graph in enumerate(report.graphs)]
    bars = timeline(report)
    values = {
        "title": title or next((frame.function for frame in report.frames if frame.graphs), "symshape"),
        "report": report,
        "graphs": graphs,
        "bars": bars,
        "groups": GROUPS,
        "rows": list(dict.fromkeys(bar.row for bar in bars)),
        "seconds": compile_seconds(bars),
        "totals": _summary(report),
        "versions": _versions(),
        "script": _script([_evaluated(graph["data"]) for graph in graphs]),
        "styles": _styles(),
        "code": _text("expressions.js") + _text("page.js"),
    }
    content = environment.get_template("content.html").render(values)  # rendering adds rows to `lines`
    packed = packed_data({"lines": lines.rows, "graphs": [graph["stages"] for graph in graphs]})
    return str(environment.get_template("page.html").render(values | {"content": content, "packed": packed}))


def packed_data(data: Any) -> str:
    """JSON, compressed and base64-encoded: the IR of a model's stages is megabytes and repetitive."""
    return base64.b64encode(zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 6)).decode()


def _graph(number: int, graph: GraphReport, lines: SourceLines, highlight: Highlighter) -> dict[str, Any]:
    data, stages = graph_data(graph, lines), stages_data(graph, lines)
    by_line = kernels_by_line(stages, [kernel.name for kernel in graph.kernels])
    return {
        "number": number,
        "report": graph,
        "data": data,
        "largest": INT64_MAX,
        "stages": stages,
        "lines": [{"number": line, "kernels": names, **lines.rows[line]} for line, names in sorted(by_line.items())],
        "ranges": _ranges(graph),
        "masks": graph.mask_remarks,
        "program": highlight(graph.program_source),
    }


def _ranges(graph: GraphReport) -> list[dict[str, str]]:
    """The ranges of symbols that are narrower than those of any size, as conditions."""
    found = []
    for row in graph.symbols:
        least = [f"{row.name} >= {row.min}"] if row.min > 0 else []
        most = [f"{row.name} <= {row.max}"] if row.max < INT64_MAX else []
        found += [{"text": text, "source": plain_source(row.source)} for text in (*least, *most)]
    return found


def _summary(report: Report) -> dict[str, int]:
    opaque = sum(_is_opaque(target) for graph in report.graphs for target in graph.library_calls)
    totals = dict(report.totals())
    return {**totals, "library_calls": totals["library_calls"] - opaque, "opaque_calls": opaque}


def _is_opaque(target: str) -> bool:
    """Whether an operator is an opaque call (``frontend/opaque_calls``)."""
    return target.startswith("symshape.opaque_")


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("symshape", "torch", "torch-mlir", "triton"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _evaluated(data: Any) -> Any:
    """The data for the script: expressions keep their JavaScript only, since the page already has their text."""
    if isinstance(data, dict):
        return {key: _evaluated(value) for key, value in data.items() if key != "text" or "js" not in data}
    return [_evaluated(one) for one in data] if isinstance(data, list) else data


def _script(data: Any) -> str:
    """JSON escaped for use inside of a script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _styles() -> str:
    """The page's style sheet, and those of pygments for light and dark mode."""
    formatter = library("pygments.formatters.html").HtmlFormatter
    light = formatter(style="default").get_style_defs(".py")
    dark = formatter(style="github-dark").get_style_defs(".py")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{_text('page.css')}"
