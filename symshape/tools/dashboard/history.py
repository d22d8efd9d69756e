"""The history of dashboard runs over commits, and detection of changes beyond noise.

Each line of the history file is one run. Runs are compared only if machine, software and conditions are equal. A figure
of a model counts as changed if the ranges of its turns are disjoint and the ratio of its medians exceeds the figure's
noise: the 90th percentile over models of maximum over minimum of the turns. With a single turn the noise is unknown and
no change is reported. Exact figures (graphs, kernels, bytes) have no noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from symshape.tools.dashboard.figures import FIGURES, OURS, Figure, ModelFigures, Spread, means, passes
from symshape.tools.dashboard.measurements import Setting
from symshape.tools.measure import quantile


@dataclass(frozen=True)
class Run:
    """One line of the history.

    ``means``   geometric means, by figure and way
    ``passed``  number of models that pass and of all models, by group and way
    ``models``  symshape's figures of each passing model
    ``failed``  symshape's error for each failing model
    """

    commit: str
    date: str
    setting: Setting
    means: dict[str, dict[str, float]]
    passed: dict[str, dict[str, tuple[int, int]]]
    models: dict[str, dict[str, Spread]]
    failed: dict[str, str]


@dataclass(frozen=True)
class Change:
    """A change of one model between two runs. ``what``: title of the figure, or that the model began to pass or to
    fail. ``ratio`` above 1 is worse. ``noise``: the threshold that the ratio exceeds."""

    model: str
    what: str
    before: float
    after: float
    noise: float
    text: str

    @property
    def ratio(self) -> float:
        return self.after / self.before


def run_of(commit: str, date: str, setting: Setting, rows: Sequence[ModelFigures]) -> Run:
    """The history's line for the figures of one run."""
    ours = [row for row in rows if row.way == OURS]
    return Run(
        commit,
        date,
        setting,
        {mean.figure.name: mean.values for mean in means(rows)},
        passes(rows),
        {row.name: row.figures for row in ours if row.passed},
        {row.name: row.error for row in ours if not row.passed},
    )


def read(path: Path) -> list[Run]:
    """Reads the history, oldest run first; empty if there is no file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [_run(json.loads(line)) for line in text.splitlines() if line]


def write(path: Path, runs: Iterable[Run]) -> None:
    """Writes the history; the file is replaced atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs), encoding="utf-8")
    written.replace(path)


def added(runs: Sequence[Run], new: Run) -> list[Run]:
    """The history with ``new`` appended; replaces an earlier run of the same commit and setting."""
    return [run for run in runs if (run.commit, run.setting) != (new.commit, new.setting)] + [new]


def _run(line: dict) -> Run:
    spreads = {m: {name: Spread(**one) for name, one in found.items()} for m, found in line["models"].items()}
    pairs = {group: {way: tuple(two) for way, two in ways.items()} for group, ways in line["passed"].items()}
    return Run(**{**line, "setting": Setting(**line["setting"]), "models": spreads, "passed": pairs})


def before(runs: Sequence[Run], new: Run) -> Run | None:
    """The run to compare with: of other commits with the same setting, the newest that shares most models; or None."""
    others = [run for run in runs if run.setting == new.setting and run.commit != new.commit]
    return max(reversed(others), key=lambda run: len(_models(run) & _models(new)), default=None)


def trend(runs: Sequence[Run], new: Run) -> list[Run]:
    """The runs whose means are comparable: of equal setting, models and ways."""

    def kind(run: Run) -> object:
        return run.setting, _models(run), {group: set(ways) for group, ways in run.passed.items()}

    return [run for run in runs if kind(run) == kind(new)]


def _models(run: Run) -> set[str]:
    return {*run.models, *run.failed}


def changes(old: Run, new: Run) -> list[Change]:
    """Changes beyond noise, the worst first, of the models that both runs measured."""
    found = [*_passes(old, new)]
    for figure in FIGURES:
        limit = noise(figure, old, new)
        if limit is None or not figure.compared:
            continue
        for model in old.models.keys() & new.models.keys():
            was, now = old.models[model].get(figure.name), new.models[model].get(figure.name)
            if was is None or now is None or min(was.median, now.median) <= 0:
                continue
            ratio = now.median / was.median
            apart = now.low > was.high or now.high < was.low
            if apart and max(ratio, 1 / ratio) > limit:
                text = f"{_shown(figure, was)} to {_shown(figure, now)}, {ratio:.3g} times"
                found.append(Change(model, figure.title, was.median, now.median, limit, text))
    return sorted(found, key=lambda change: (-change.ratio, change.model))


def noise(figure: Figure, old: Run, new: Run) -> float | None:
    """The 90th percentile over models of maximum over minimum of the turns; None if no turn was repeated."""
    if figure.exact:
        return 1.0
    spreads = [m[figure.name] for run in (old, new) for m in run.models.values() if figure.name in m]
    return quantile(sorted(one.high / one.low for one in spreads if one.turns > 1 and one.low > 0), 0.9)


def _passes(old: Run, new: Run) -> Iterable[Change]:
    for model in old.models.keys() & new.failed.keys():
        yield Change(model, "passed, and fails now", 1.0, float("inf"), 1.0, new.failed[model])
    for model in old.failed.keys() & new.models.keys():
        yield Change(model, "failed, and passes now", 1.0, 0.0, 1.0, old.failed[model])


def _shown(figure: Figure, one: Spread) -> str:
    return f"{one.median * figure.scale:.4g} {figure.unit}".rstrip()
