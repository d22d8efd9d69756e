"""``symshape plot FILE.json``: draws results that `measure.write_result` wrote.

Supports results of ``symshape sweep``, ``symshape ablate`` and ``bench/kernels.py``. Rows are tidy data (one row per
measurement), so a plot only names the columns to draw.
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
_PIPELINE = "pipeline"  # the variant that the others of an ablation are compared with


def regret(rows: Sequence[Row]) -> Any:
    """Plots ``symshape sweep``: the time of each sample divided by the best value's median at the same size, over the
    number of points. One line per value, with the range of its samples."""
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
    """Plots ``symshape ablate``: the time of each variant divided by the whole pipeline's, one point per model."""
    others = [row for row in rows if row["variant"] != _PIPELINE]
    variants = list(dict.fromkeys(row["variant"] for row in others))
    series = []
    for subject in dict.fromkeys(row["subject"] for row in others):
        own = [row for row in others if row["subject"] == subject]
        series.append(Series(subject, [row["variant"] for row in own], [row["ratio"] for row in own]))
    return points(variants, series, Axes("", "time over the whole pipeline's", log_y=True, reference=1.0))


def kernels(rows: Sequence[Row]) -> Any:
    """Plots ``bench/kernels.py``: time divided by that of Inductor with static sizes, one panel per kernel."""
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
    """Plots a result file and returns the path of the image, by default a PNG beside it. OptionError if the file is not
    a result or its kind has no plot."""
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
