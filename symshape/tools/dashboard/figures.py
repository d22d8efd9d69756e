"""Aggregates measurements: median and range over turns per model and way; geometric means over models."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from symshape.tools.dashboard.measurements import Measurement

OURS = "symshape"
WAYS = (OURS, "inductor_dynamic", "inductor_static", "aot_eager")
TITLES = {
    OURS: "symshape",
    "inductor_dynamic": "Inductor, dynamic",
    "inductor_static": "Inductor, static",
    "aot_eager": "aot_eager",
}
# For float32; the tests of models use the same tolerance.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Figure:
    """One column of the dashboard; smaller is better. ``exact``: all turns must give the same number. ``compared``:
    changes between runs are reported; false for noisy figures that another figure covers better. ``scale`` converts to
    ``unit``."""

    name: str
    title: str
    unit: str
    of: Callable[[Measurement], float | None]
    exact: bool = False
    scale: float = 1.0
    compared: bool = True


def over_eager(one: Measurement) -> float | None:
    """Time per call divided by eager mode's in the same process: geometric mean over sizes of the ratio of medians."""
    ratios = [statistics.median(s[one.key.way]) / statistics.median(s["eager"]) for s in one.seconds.values()]
    return statistics.geometric_mean(ratios) if ratios else None


def per_call(one: Measurement) -> float | None:
    """Seconds per call: geometric mean over sizes of the median."""
    found = [statistics.median(samples[one.key.way]) for samples in one.seconds.values()]
    return statistics.geometric_mean(found) if found else None


FIGURES = (
    Figure("over_eager", "time of a call over eager's", "", over_eager),
    Figure("per_call", "time of a call", "ms", per_call, scale=1e3, compared=False),
    Figure("first", "first call, processor", "s", lambda one: one.first),
    Figure("first_wall", "first call, wall", "s", lambda one: one.first_wall, compared=False),
    Figure("compile", "compile time of the backend", "s", lambda one: one.compile),
    Figure("later", "first calls at other sizes", "s", lambda one: one.later),
    Figure("memory", "peak memory beyond eager's", "MB", lambda one: one.memory, scale=1e-6),
    Figure("graphs", "graphs", "", lambda one: one.graphs, exact=True),
    Figure("kernels", "kernels launched", "", lambda one: one.kernels, exact=True),
    Figure("bytes", "bytes read and written", "MB", lambda one: one.bytes, exact=True, scale=1e-6),
)


@dataclass(frozen=True)
class Spread:
    """Median and range of a figure over the turns."""

    median: float
    low: float
    high: float
    turns: int


@dataclass(frozen=True)
class ModelFigures:
    """The figures of one model run in one way. ``seconds``: for each size, median seconds per call in this way and in
    eager mode in the same process. ``error``: what failed in some turn, or how far the numbers are off; "" if it
    passed."""

    group: str
    model: str
    way: str
    figures: dict[str, Spread]
    seconds: dict[str, tuple[float, float]]
    largest_error: float | None
    error: str

    @property
    def name(self) -> str:
        return f"{self.group}/{self.model}"

    @property
    def passed(self) -> bool:
        return not self.error


def by_model(measurements: Iterable[Measurement]) -> list[ModelFigures]:
    """One entry per model and way; models in the order of measurement, ways in the order of ``WAYS``."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault((one.key.group, one.key.model, one.key.way), []).append(one)
    models = list(dict.fromkeys(key[:2] for key in groups))
    order = sorted(groups, key=lambda key: (models.index(key[:2]), _position(key[2])))
    return [_of_turns(*key, groups[key]) for key in order]


def _position(way: str) -> int:
    return WAYS.index(way) if way in WAYS else len(WAYS)


def _of_turns(group: str, model: str, way: str, turns: Sequence[Measurement]) -> ModelFigures:
    figures = {}
    for figure in FIGURES:
        found = [value for value in map(figure.of, turns) if value is not None]
        if found:
            figures[figure.name] = Spread(statistics.median(found), min(found), max(found), len(found))
    differences = [error for one in turns for error in one.errors.values()]
    largest = max(differences, default=None)
    failed = next((one.error for one in turns if one.error), "")
    if not failed and (largest is None or not largest <= TOLERANCE):
        failed = "no number was compared" if largest is None else f"numbers differ from eager's by {largest:.2g}"
    return ModelFigures(group, model, way, figures, _at_sizes(turns, way), largest, failed)


def _at_sizes(turns: Sequence[Measurement], way: str) -> dict[str, tuple[float, float]]:
    sizes = dict.fromkeys(size for one in turns for size in one.seconds)
    taken = {size: [one.seconds[size] for one in turns if size in one.seconds] for size in sizes}
    return {
        size: (
            statistics.median(second for samples in each for second in samples[way]),
            statistics.median(second for samples in each for second in samples["eager"]),
        )
        for size, each in taken.items()
    }


@dataclass(frozen=True)
class AtSize:
    """Seconds per call of a model at one size, by way. ``eager`` is measured in the process of the first way; ``first``
    says whether this is the size that the model was first called at."""

    model: str
    size: str
    first: bool
    eager: float
    ways: dict[str, float]


def at_sizes(rows: Iterable[ModelFigures], group: str) -> list[AtSize]:
    """The times of all models of a group, at each size at which some way was timed."""
    models: dict[str, list[ModelFigures]] = {}
    for row in rows:
        if row.group == group:
            models.setdefault(row.model, []).append(row)
    found = []
    for model, ways in models.items():
        for number, size in enumerate(dict.fromkeys(size for row in ways for size in row.seconds)):
            held = [row for row in ways if size in row.seconds]
            times = {row.way: row.seconds[size][0] for row in held}
            found.append(AtSize(model, size, number == 0, held[0].seconds[size][1], times))
    return found


@dataclass(frozen=True)
class Mean:
    """Geometric means of one figure by way, over the models that pass and have the figure in all these ways."""

    figure: Figure
    models: int
    values: dict[str, float]


def means(rows: Sequence[ModelFigures]) -> list[Mean]:
    """The means of all figures. A way that lacks a figure for all models is dropped, so that it excludes no model."""
    found = []
    for figure in FIGURES:
        values: dict[str, dict[str, float]] = {}
        for row in rows:
            if row.passed and figure.name in row.figures and row.figures[figure.name].median > 0:
                values.setdefault(row.way, {})[row.name] = row.figures[figure.name].median
        common = set.intersection(*(set(names) for names in values.values())) if values else set()
        if common:
            each = {way: statistics.geometric_mean(v[name] for name in sorted(common)) for way, v in values.items()}
            found.append(Mean(figure, len(common), {way: each[way] for way in sorted(each, key=_position)}))
    return found


def passes(rows: Iterable[ModelFigures]) -> dict[str, dict[str, tuple[int, int]]]:
    """By group and way: number of models that pass, and of all models."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for row in rows:
        ways = found.setdefault(row.group, {})
        passed, every = ways.get(row.way, (0, 0))
        ways[row.way] = passed + row.passed, every + 1
    return found
