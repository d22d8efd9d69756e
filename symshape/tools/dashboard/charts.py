"""The dashboard's plots: each a matplotlib figure with a name, a title and a description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symshape.tools.dashboard.figures import FIGURES, OURS, TITLES, ModelFigures
from symshape.tools.dashboard.history import Run
from symshape.tools.plots import Axes, Panel, Series, lines, points

# The figures that are plotted for each model, relative to a way that has them.
_SHOWN = ("over_eager", "first", "memory", "kernels")
_TRENDS = ("over_eager", "first", "compile", "memory", "graphs", "kernels")


@dataclass(frozen=True)
class Chart:
    name: str
    title: str
    words: str
    figure: Any


def charts(rows: Sequence[ModelFigures], runs: Sequence[Run]) -> list[Chart]:
    """All plots that have data. ``runs`` are the runs of one setting, oldest first."""
    return [*_by_model(rows), *_trends(runs)]


def _by_model(rows: Sequence[ModelFigures]) -> list[Chart]:
    found = []
    for figure in (one for one in FIGURES if one.name in _SHOWN):
        held = [row for row in rows if row.passed and figure.name in row.figures]
        names = sorted({row.name for row in held}, key=[row.name for row in rows].index)
        ways = dict.fromkeys(row.way for row in held)
        series = [
            Series(
                TITLES.get(way, way),
                [row.name for row in held if row.way == way],
                [row.figures[figure.name].median * figure.scale for row in held if row.way == way],
            )
            for way in ways
        ]
        if series:
            unit = f" ({figure.unit})" if figure.unit else ""
            reference = 1.0 if figure.name == "over_eager" else None
            axes = Axes("", figure.title + unit, log_y=True, reference=reference)
            words = f"{figure.title}{unit} of {len(names)} models, a point for each way; less is better"
            found.append(Chart(figure.name, figure.title, words, points(names, series, axes)))
    return found


def _trends(runs: Sequence[Run]) -> list[Chart]:
    """Geometric means over commits, relative to the first run in which a way has the figure."""
    shown = []
    for figure in (one for one in FIGURES if one.name in _TRENDS):
        ways = dict.fromkeys(way for run in runs for way in run.means.get(figure.name, {}))
        series = []
        for way in ways:
            held = [
                (at, run.means[figure.name][way]) for at, run in enumerate(runs, 1) if way in _means(run, figure.name)
            ]
            relative = [value / held[0][1] for _, value in held]
            series.append(Series(TITLES.get(way, way), [at for at, _ in held], relative))
        if series:
            shown.append(Panel(figure.title, series))
    if len(runs) < 2:
        return []
    span = f"{runs[0].commit} ({runs[0].date}) to {runs[-1].commit} ({runs[-1].date})"
    figure = lines(shown, Axes(f"runs, {span}", "over the first run", reference=1.0, whole_x=True), columns=3)
    words = f"geometric means of {len(runs)} runs over those of the first, {span}; {TITLES[OURS]} and the others"
    return [Chart("trends", "trends over commits", words, figure)]


def _means(run: Run, name: str) -> dict[str, float]:
    return run.means.get(name, {})
