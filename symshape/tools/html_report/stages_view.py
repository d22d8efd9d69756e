"""The stages of a graph for the page: operations, their lines of user code, and the kernels they become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from symshape.dialects.short_form import print_short
from symshape.passes.stages import STAGES
from symshape.tools.html_report.operations import Operation, read_operations
from symshape.tools.html_report.sources import SourceLines
from symshape.tools.report import GraphReport

_LAUNCH = re.compile(r'"host\.launch".*callee = @([\w.$-]+)[,}]')


def stages_data(graph: GraphReport, lines: SourceLines) -> dict[str, Any]:
    """The data of a graph's stages.

    ``stages``   by name, the operations as [line number in the text, numbers of user lines, text]; the name of an
                 earlier stage if the text is unchanged
    ``kernels``  by name, the positions of its operations in each stage, and its code
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
    own = _Owners({kernel.name for kernel in graph.kernels}, read)
    kernels = {kernel.name: {"code": kernel.source, "stages": own.of(kernel.name)} for kernel in graph.kernels}
    return {"stages": stages, "kernels": kernels}


def _row(operation: Operation, lines: SourceLines) -> list[Any]:
    numbers = [lines.number(*line) for line in operation.origin.lines]
    return [operation.number, numbers, print_short(operation.text)]


class _Owners:
    """Finds the operations of each kernel in each stage. After fusion these are its function and its launches; in
    earlier stages, the operations that come from the same graph nodes."""

    def __init__(self, names: set[str], read: dict[str, list[Operation]]) -> None:
        self._has_kernels = {stage: any(op.function in names for op in read[stage]) for stage in read}
        self._by_kernel: dict[str, dict[str, list[int]]] = {}
        self._by_node: dict[str, dict[str, list[int]]] = {}
        self._nodes: dict[str, set[str]] = {name: set() for name in names}
        for stage, operations in read.items():
            kernels = self._by_kernel[stage] = {name: [] for name in names}
            nodes = self._by_node[stage] = {}
            for i, operation in enumerate(operations):
                launched = _LAUNCH.search(operation.text)
                name = launched.group(1) if launched else operation.function
                if name in kernels:
                    kernels[name].append(i)
                    self._nodes[name].update(operation.origin.nodes)
                for node in () if operation.is_head else operation.origin.nodes:
                    nodes.setdefault(node, []).append(i)

    def of(self, kernel: str) -> dict[str, list[int]]:
        """The positions of a kernel's operations, by stage."""
        return {
            stage: self._by_kernel[stage][kernel] if exists else self._from_nodes(stage, kernel)
            for stage, exists in self._has_kernels.items()
        }

    def _from_nodes(self, stage: str, kernel: str) -> list[int]:
        found = (self._by_node[stage].get(node, ()) for node in self._nodes[kernel])
        return sorted({i for positions in found for i in positions})


def kernels_by_line(data: dict[str, Any], names: Sequence[str]) -> dict[int, list[str]]:
    """The kernels that compute something of each line of user code, by the line's number."""
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
