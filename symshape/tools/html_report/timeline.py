"""The timeline of compiling: tracing of each frame, and the steps of each graph grouped by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symshape.passes.stages import STAGES
from symshape.pipeline import COPY, DYNAMO, IR, JOINT, KERNEL, PIPELINE, PROGRAM, TRACED
from symshape.tools.report import GraphReport, Report

_NAMES = {
    DYNAMO: "before tracing",
    COPY: "before tracing",
    JOINT: "before tracing",
    TRACED: "before import",
    KERNEL: "kernel code",
    PROGRAM: "program",
}
GROUPS = ("tracing", "before tracing", "before import", *STAGES, "kernel code", "program", "other passes")


@dataclass(frozen=True)
class Bar:
    """One bar: a group of steps that starts at ``start`` and takes ``seconds``, counted from the first bar. ``steps``:
    name and seconds of each step."""

    row: str
    group: str
    start: float
    seconds: float
    steps: tuple[tuple[str, float], ...]


def timeline(report: Report) -> list[Bar]:
    """The bars in order: for each traced frame a bar of tracing (its time minus that of its graphs), then its graphs.

    Only durations of steps are recorded, not start times, so bars are placed one after another.
    """
    bars: list[Bar] = []
    now, done = 0.0, 0
    for frame in report.frames:
        own = report.graphs[done : frame.graphs]
        known = sum(seconds for graph in own for _, seconds in graph.timings)
        traced = max(frame.seconds - known, 0.0)
        row = f"{frame.function}: tracing" if own else "frames without a graph"
        bars.append(Bar(row, "tracing", now, traced, ((f"Dynamo and AOTAutograd: {frame.line}", traced),)))
        now += traced
        for number, graph in enumerate(own, done):
            bars += _of_graph(graph, number, now)
            now = bars[-1].start + bars[-1].seconds
        done = max(done, frame.graphs)
    for number, graph in enumerate(report.graphs[done:], done):  # graphs compiled lazily, at their first run
        bars += _of_graph(graph, number, now)
        now = bars[-1].start + bars[-1].seconds
    return bars


def compile_seconds(bars: Sequence[Bar]) -> float:
    """The sum over all bars."""
    return sum(bar.seconds for bar in bars)


def _of_graph(graph: GraphReport, number: int, start: float) -> list[Bar]:
    grouped: dict[str, list[tuple[str, float]]] = {}
    for name, seconds in graph.timings:
        grouped.setdefault(_group(name), []).append((name, seconds))
    bars = []
    for group, steps in grouped.items():
        seconds = sum(each for _, each in steps)
        bars.append(Bar(f"graph {number} ({graph.kind})", group, start, seconds, tuple(steps)))
        start += seconds
    return bars or [Bar(f"graph {number} ({graph.kind})", "other passes", start, 0.0, ())]


def _group(name: str) -> str:
    if name == "import-graph":
        return "imported"
    step = next((step for step in PIPELINE if step.name == name), None)
    if step is None:
        return "other passes"
    if step.on == IR:
        return step.stage or "planned"  # the verifier has no stage; it runs after the last one
    return _NAMES[step.on]
