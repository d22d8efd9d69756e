"""What each pass is worth: every model with one pass switched off, beside the whole pipeline.

    python bench/ablation.py [--models bert,t5] [--rounds 5] [--out bench/results/ablation.json]

Times of one model are taken in turns at one shape. A pass that the pipeline does not run changes nothing and is left
out of the table.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.passes.stages import STAGES
from symshape.tools.measure import interleaved, relative_error, write_result
from symshape.tools.report import Report
from symshape.tools.terminal import Progress, table
from symshape.tools.zoo import MODELS, Model

WHOLE = "-"


@dataclass(frozen=True)
class Row:
    model: str
    without: str
    kernels: int
    launches: int
    library_calls: int
    seconds: float
    error: float


def passes() -> list[str]:
    """Names of the passes that the pipeline runs."""
    return [element.split("{")[0] for elements in STAGES.values() for element in elements]


def measure(model: Model, rounds: int, progress: Progress) -> list[Row]:
    """One row for the whole pipeline and one for each pass left out; the same inputs and weights for all."""
    inputs = model.inputs(model.first_shapes[-1])
    totals: dict[str, Mapping[str, int]] = {}
    errors: dict[str, float] = {}
    runs: dict[str, Callable[[], Any]] = {}
    torch._dynamo.reset()
    with torch.no_grad():
        expected = model.build()(**inputs)
        for without in (WHOLE, *passes()):
            progress.say(f"{model.name} without {without}")
            report = Report()
            options = {"disable_passes": [] if without == WHOLE else [without]}
            backend = functools.partial(symshape_backend, options=options, reports=report.graphs)
            runs[without] = functools.partial(compile_with(model.build(), backend), **inputs)
            errors[without] = relative_error(runs[without](), expected)
            totals[without] = report.totals()
            progress.step()
        times = interleaved(runs, rounds)
    counts = {name: [total[key] for key in ("kernels", "launches", "library_calls")] for name, total in totals.items()}
    return [Row(model.name, name, *counts[name], times[name], errors[name]) for name in totals]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    names = options.models.split(",")
    rows: list[Row] = []
    with Progress("ablation", len(names) * (1 + len(passes()))) as progress:
        for name in names:
            rows += measure(MODELS[name], options.rounds, progress)
    whole = {row.model: row for row in rows if row.without == WHOLE}
    body = [
        [
            r.model,
            r.without,
            r.kernels,
            r.launches,
            r.library_calls,
            1e3 * r.seconds,
            r.seconds / whole[r.model].seconds,
            r.error,
        ]
        for r in rows
    ]
    print(table(["model", "without", "kernels", "launches", "library calls", "ms", "x whole", "error"], body))
    if options.out:
        write_result(options.out, "ablation", [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
