"""Steady-state time per call: models x shapes; eager, inductor (dynamic=True) and symshape, interleaved in one run.

    python bench/steady_state.py [--models bert,t5] [--shapes 6] [--rounds 7] [--out bench/results/steady_state.json]

Every backend is compiled and has met every shape before anything is timed; samples are taken in turns; a figure is the
median. Ratios are geometric means over shapes.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from symshape.tools.measure import compile_for, geometric_mean, interleaved, relative_error, write_result
from symshape.tools.terminal import Progress, heading, table
from symshape.tools.zoo import MODELS, Model, Shape

# A framework backend is what a user of it writes; ours is what a user of ours writes.
BACKENDS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda module: module,
    "aot_eager": lambda module: torch.compile(module, backend="aot_eager", dynamic=True),
    "inductor": lambda module: torch.compile(module, backend="inductor", dynamic=True),
    "symshape": functools.partial(compile_for, "symshape"),
}


@dataclass(frozen=True)
class Row:
    model: str
    shape: Shape
    seconds: dict[str, float]
    error: float


def choose(model: Model, count: int) -> tuple[Shape, ...]:
    """``count`` shapes from the smallest to the largest without a size of 1, evenly spread by their volume."""
    ordered = sorted(model.large_shapes, key=lambda shape: functools.reduce(lambda a, b: a * b, shape))
    if count >= len(ordered):
        return tuple(ordered)
    return tuple(ordered[round(i * (len(ordered) - 1) / max(count - 1, 1))] for i in range(count))


def measure(model: Model, shapes: tuple[Shape, ...], backends: list[str], rounds: int, progress: Progress) -> list[Row]:
    """All backends of one model, compiled once, then timed at every shape."""
    torch._dynamo.reset()
    # A module of its own for each: Dynamo keeps its graphs with the code, and the first match would serve them all.
    compiled = {name: BACKENDS[name](model.build()) for name in backends}
    rows, errors = [], {}
    with torch.no_grad():
        for shape in shapes:
            inputs = model.inputs(shape)
            progress.say(f"{model.name}: compiling and warming up at {model.describe(shape)}")
            outputs = {name: run(**inputs) for name, run in compiled.items()}
            errors[shape] = relative_error(outputs[backends[-1]], outputs[backends[0]])
        for shape in shapes:
            progress.say(f"{model.name}: {model.describe(shape)}")
            runs = {name: functools.partial(run, **model.inputs(shape)) for name, run in compiled.items()}
            rows.append(Row(model.name, shape, interleaved(runs, rounds), errors[shape]))
            progress.step()
    return rows


def ratios(rows: list[Row], backend: str, against: str) -> float | str:
    """Geometric mean of time over time: below 1, ``backend`` is faster."""
    if not all(backend in row.seconds and against in row.seconds for row in rows):
        return "-"
    return geometric_mean(row.seconds[backend] / row.seconds[against] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default="eager,inductor,symshape", help="the last is compared with the others")
    parser.add_argument("--shapes", type=int, default=6, help="how many shapes of each model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    names, backends = options.models.split(","), options.backends.split(",")
    rows: list[Row] = []
    with Progress("steady state", sum(len(choose(MODELS[name], options.shapes)) for name in names)) as progress:
        for name in names:
            rows += measure(MODELS[name], choose(MODELS[name], options.shapes), backends, options.rounds, progress)
    ours, others = backends[-1], backends[:-1]
    print(heading("milliseconds per call, medians"))
    body = [[r.model, "x".join(map(str, r.shape)), *(1e3 * r.seconds[b] for b in backends), r.error] for r in rows]
    print(table(["model", "shape", *backends, f"{ours}: error"], body))
    print(heading(f"{ours}: time over theirs, geometric means over shapes (below 1 is faster)"))
    groups = {name: [row for row in rows if row.model == name] for name in names} | {"all": rows}
    summary = {name: {other: ratios(group, ours, other) for other in others} for name, group in groups.items()}
    print(table(["model", *others], [[name, *values.values()] for name, values in summary.items()]))
    if options.out:
        write_result(options.out, "steady_state", [asdict(row) for row in rows], ratios=summary)


if __name__ == "__main__":
    main()
