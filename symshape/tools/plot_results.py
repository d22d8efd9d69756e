"""Results that are kept as JSON (`measure.write_result`) as plots: ``symshape plot FILE.json``.

The rows are tidy, so a plot says only which column is what. Kinds: those of ``symshape sweep`` and ``symshape ablate``,
and of ``bench/kernels.py``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from symshape.errors import OptionError
from symshape.tools.plots import Axes, Row, Series, lines, panels, points, save

_YARDSTICK = "inductor_static"
_PIPELINE = "pipeline"  # the variant that others of an ablation are compared with


def regret(rows: Sequence[Row]) -> Any:
    """Of ``symshape sweep``: each sample over the best value's median at its size, over the number of points; a line
    for each value, with the range of its samples."""
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        samples.setdefault((row["program"], row["size"]), {}).setdefault(row["value"], []).append(row["seconds"])
    best = {at: min(map(statistics.median, of_values.values())) for at, of_values in samples.items()}
    tidy = [
        {
            "title": f"{row['program']}: {row['parameter']}",
            "value": row["value"],
            "points": row["points"],
            "regret": row["seconds"] / best[row["program"], row["size"]],
        }
        for row in rows
    ]
    axes = Axes("points (product of the sizes)", "time over the best value's", log_x=True, reference=1.0)
    return lines(panels(tidy, panel="title", series="value", x="points", y="regret"), axes)


def ablation(rows: Sequence[Row]) -> Any:
    """Of ``symshape ablate``: the time of each variant over the whole pipeline's, a point for each model."""
    others = [row for row in rows if row["variant"] != _PIPELINE]
    variants = list(dict.fromkeys(row["variant"] for row in others))
    series = []
    for subject in dict.fromkeys(row["subject"] for row in others):
        own = [row for row in others if row["subject"] == subject]
        series.append(Series(subject, [row["variant"] for row in own], [row["ratio"] for row in own]))
    return points(variants, series, Axes("", "time over the whole pipeline's", log_y=True, reference=1.0))


def kernels(rows: Sequence[Row]) -> Any:
    """Of ``bench/kernels.py``: time over Inductor static at each size, a panel for each kernel."""
    tidy = [
        {
            "kernel": row["kernel"].replace("_", " "),
            "way": name.replace("_", " "),
            "elements": row["elements"],
            "ratio": seconds / row["seconds"][_YARDSTICK],
        }
        for row in rows
        for name, seconds in row["seconds"].items()
        if name != _YARDSTICK
    ]
    axes = Axes("elements", "time over Inductor static", log_x=True, log_y=True, reference=1.0, limits=(0.1, 10))
    return lines(panels(tidy, panel="kernel", series="way", x="elements", y="ratio", merged=False), axes, joined=False)


KINDS: dict[str, Callable[[Sequence[Row]], Any]] = {"sweep": regret, "ablation": ablation, "kernels": kernels}


def draw(file: str | Path, image: str | Path | None = None) -> Path:
    """The plot of a result, by default beside it as PNG. OptionError for a file that is no such result."""
    path = Path(file)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        kind, rows = record["benchmark"], record["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{path} is no result: {error}", next_step="give a file that --out has written") from error
    if kind not in KINDS or not rows:
        said = f"{path} has no rows" if kind in KINDS else f"{path} is a result of {kind!r}, which has no plot"
        raise OptionError(said, next_step=f"results with plots: {', '.join(KINDS)}")
    return save(KINDS[kind](rows), image or path.with_suffix(".png"))
