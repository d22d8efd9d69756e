"""The plots of docs/corpus.md, drawn from the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from symshape.tools.plots import Axes, Panel, Series, lines, points, save

_EACH: Final = 5  # a line has a point every so many percentiles


def write_charts(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes two PNG files and returns their paths. OptionError if matplotlib is not installed."""
    solvers, kinds = figures["solvers"], figures["kinds"]
    return [
        save(_time(solvers, figures["decided"]), folder / "corpus-time.png"),
        save(_kinds(kinds, [row["name"] for row in solvers]), folder / "corpus-kinds.png"),
    ]


def _time(solvers: Sequence[Mapping[str, Any]], decided: int) -> Any:
    """Share of the decided questions that each solver solves, over the time per question."""
    series = []
    for row in solvers:
        times = row["quantiles of solved"]
        if times[0] is not None:
            shares = [100 * row["share"] * i / (len(times) - 1) for i in range(len(times))]
            label = f"{row['name']}: {100 * row['share']:.1f} %"
            series.append(Series(label, [1e6 * one for one in times[::_EACH]], shares[::_EACH]))
    axes = Axes("processor time of a question, us", "questions solved, %", log_x=True, limits=(0, 102))
    return lines([Panel(f"{decided:,} questions that always or never hold", series)], axes)


def _kinds(kinds: Sequence[Mapping[str, Any]], solvers: Sequence[str]) -> Any:
    """Share of the questions that each solver solves, per kind of question."""
    names = {f"{row['kind']} ({row['decided']:,})": row for row in kinds if row["decided"]}
    series = [
        Series(solver, list(names), [100 * row["solved"][solver] / row["decided"] for row in names.values()])
        for solver in solvers
    ]
    return points(list(names), series, Axes("", "questions solved, %", limits=(0, 102)))
