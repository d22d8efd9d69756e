"""The history over commits, and what became worse or better beyond noise.

A line of the file is one run. Lines are compared only where machine, software and conditions are equal. A figure of a
model counts as changed when the ranges of the turns do not touch and the ratio of the medians is beyond the noise of
that figure: the range of turns (high over low) that nine of ten models stay within, in either run. With one turn there
is no noise to measure, and nothing is said. Exact figures (graphs, kernels, bytes) have none.
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
    """One line.

    ``means``   geometric means: by figure, by way
    ``passed``  by group, by way: how many models, of how many
    ``models``  symshape's figures of each model that passes
    ``failed``  what failed of symshape, by model
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
    """Of a model's figure from one run to the next: ``ratio`` above 1 is worse. ``what``: the figure's title, or
    that the model has passed in one of the two only. ``noise``: what the ratio is beyond."""

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
    """From the oldest to the newest."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [_run(json.loads(line)) for line in text.splitlines() if line]


def write(path: Path, runs: Iterable[Run]) -> None:
    """The whole file, which is there at each moment either as it was or as it becomes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs), encoding="utf-8")
    written.replace(path)


def added(runs: Sequence[Run], new: Run) -> list[Run]:
    """With the new run at the end; an earlier one of the same commit and setting gives way to it."""
    return [run for run in runs if (run.commit, run.setting) != (new.commit, new.setting)] + [new]


def _run(line: dict) -> Run:
    spreads = {m: {name: Spread(**one) for name, one in found.items()} for m, found in line["models"].items()}
    pairs = {group: {way: tuple(two) for way, two in ways.items()} for group, ways in line["passed"].items()}
    return Run(**{**line, "setting": Setting(**line["setting"]), "models": spreads, "passed": pairs})


def before(runs: Sequence[Run], new: Run) -> Run | None:
    """Of the runs of other commits with the same setting the one with most models in common; of several the newest."""
    others = [run for run in runs if run.setting == new.setting and run.commit != new.commit]
    return max(reversed(others), key=lambda run: len(_models(run) & _models(new)), default=None)


def trend(runs: Sequence[Run], new: Run) -> list[Run]:
    """The runs whose means may be compared: of the same setting, models and ways."""

    def kind(run: Run) -> object:
        return run.setting, _models(run), {group: set(ways) for group, ways in run.passed.items()}

    return [run for run in runs if kind(run) == kind(new)]


def _models(run: Run) -> set[str]:
    return {*run.models, *run.failed}


def changes(old: Run, new: Run) -> list[Change]:
    """What changed beyond noise, the worst first. Models that only one of the two has measured are not in it."""
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
    """High over low of repeated turns, for nine of ten models; None where no turn was repeated."""
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
