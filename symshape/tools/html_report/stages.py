"""Every stage of a graph: its operations, the user's lines they come from, and what of each became which kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.passes.stages import STAGES
from symshape.tools.html_report.operations import Operation, read_operations
from symshape.tools.html_report.sources import SourceLines
from symshape.tools.report import GraphReport


def stages_data(graph: GraphReport, lines: SourceLines) -> dict[str, Any]:
    """What the page keeps of a graph's stages.

    ``stages``   by name, the operations: number of the line, the user's lines, text; the name of an earlier stage
                 where nothing has changed since
    ``kernels``  by name: by stage, which operations are its own; and its code
    """
    read: dict[str, list[Operation]] = {}
    stages: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for name in STAGES:
        if name not in graph.stages:
            continue
        text = graph.stages[name]
        if text in texts:
            stages[name], read[name] = texts[text], read[texts[text]]
            continue
        texts[text] = name
        read[name] = read_operations(text)
        stages[name] = [_row(operation, lines) for operation in read[name]]
    functions = {kernel.name for kernel in graph.kernels}
    kernels = {
        kernel.name: {"code": kernel.source, "stages": _of_kernel(kernel.name, functions, read)}
        for kernel in graph.kernels
    }
    return {"stages": stages, "kernels": kernels}


def _row(operation: Operation, lines: SourceLines) -> list[Any]:
    return [operation.number, [lines.number(*line) for line in operation.origin.lines], operation.text]


def _of_kernel(name: str, functions: set[str], read: dict[str, list[Operation]]) -> dict[str, list[int]]:
    """Its function and its launches where it exists; before, the operations that come from the same graph nodes."""
    last = next(reversed(read.values()), [])
    nodes = {node for operation in last if _is_of(operation, name) for node in operation.origin.nodes}
    found = {}
    for stage, operations in read.items():
        if any(operation.function in functions for operation in operations):
            found[stage] = [i for i, operation in enumerate(operations) if _is_of(operation, name)]
        else:
            found[stage] = [i for i, operation in enumerate(operations) if _comes_from(operation, nodes)]
    return found


def _is_of(operation: Operation, kernel: str) -> bool:
    return operation.function == kernel or f"callee = @{kernel}}}" in operation.text


def _comes_from(operation: Operation, nodes: set[str]) -> bool:
    return not operation.is_head and not nodes.isdisjoint(operation.origin.nodes)


def kernels_by_line(data: dict[str, Any], names: Sequence[str]) -> dict[int, list[str]]:
    """By number of a user's line, the kernels that something of it is computed in."""
    found: dict[int, list[str]] = {}
    if not data["stages"]:
        return found
    stage = list(data["stages"])[-1]
    rows = data["stages"][stage]
    rows = data["stages"][rows] if isinstance(rows, str) else rows
    for name in names:
        numbers = {line for i in data["kernels"][name]["stages"][stage] for line in rows[i][1]}
        for line in sorted(numbers):
            found.setdefault(line, []).append(name)
    return found
