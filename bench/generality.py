"""The cost of one graph for every size: symshape.compile against graphs that PyTorch specialises on 0 and 1.

    python bench/generality.py [--models bert,gpt2] [--kernels softmax,gelu] [--max-elements 5e6] [--rounds 5]

Both ways use this backend. Behind a backend of another name it gets what Dynamo's own rules trace: for sizes from 2
on, and with a graph of its own for each size of 1. ``symshape.compile`` traces for all. A figure is the general graph's
time over the specialised one's, processor time of whole calls with one thread, medians of rounds that take turns;
``sizes >= 2`` and ``size 1`` are geometric means and the worst shape.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from kernel_programs import PROGRAMS, KernelProgram, elements, meet

import symshape
from symshape.backend import symshape_backend
from symshape.tools.measure import geometric_mean, samples, write_result
from symshape.tools.terminal import Progress, table
from symshape.tools.zoo import MODELS, Model

Ways = dict[str, Callable[..., Any]]
Row = dict[str, Any]


def by_dynamos_rules(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """This backend as Dynamo calls any other: nothing knows it by its name, so frames keep 0/1 specialisation."""
    return symshape_backend(gm, inputs)


def both(make: Callable[[], Any]) -> Ways:
    """A function or module compiled in both ways, which look for graphs among their own only (PyTorch 2.13)."""
    specialised = torch.compile(make(), backend=by_dynamos_rules, dynamic=True, isolate_recompiles=True)
    return {"specialised": specialised, "general": symshape.compile(make(), isolate_recompiles=True)}


def ratio(ways: Ways, arguments: Sequence[Any], keywords: dict[str, Any], rounds: int) -> float:
    """Time of the general way over that of the specialised one; both have met the sizes before."""
    calls = {name: partial(run, *arguments, **keywords) for name, run in ways.items()}
    for call in calls.values():
        call()
    found = samples(calls, rounds, clock=time.process_time)
    return statistics.median(a / b for a, b in zip(found["general"], found["specialised"], strict=True))


def of_model(model: Model, rounds: int) -> list[Row]:
    torch._dynamo.reset()
    ways, rows = both(model.build), []
    with torch.no_grad():
        for shape in (*model.large_shapes, *model.one_shapes):
            inputs = model.inputs(shape)
            rows.append({"name": model.name, "shape": shape, "ratio": ratio(ways, (), inputs, rounds)})
    return rows


def of_kernel(program: KernelProgram, most: float, rounds: int) -> list[Row]:
    torch._dynamo.reset()
    ways, rows = both(program.copy), []
    for run in ways.values():
        meet(run, program.inputs(program.first, dtype=torch.float32))
    for shape in program.shapes:
        if elements(shape) <= most:
            inputs = program.inputs(shape, dtype=torch.float32)
            rows.append({"name": program.name, "shape": shape, "ratio": ratio(ways, inputs, {}, rounds)})
    return rows


def summary(rows: Sequence[Row]) -> list[Any]:
    """Of sizes from 2 on and of sizes of 1: the geometric mean, the worst, and where that is."""
    found: list[Any] = []
    for chosen in ([r for r in rows if min(r["shape"]) > 1], [r for r in rows if min(r["shape"]) == 1]):
        worst = max(chosen, key=lambda row: row["ratio"], default=None)
        at = "x".join(map(str, worst["shape"])) if worst else ""
        found += [geometric_mean(r["ratio"] for r in chosen), worst["ratio"], at] if worst else ["", "", ""]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--kernels", default=",".join(PROGRAMS))
    parser.add_argument("--max-elements", type=float, default=5e6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    models, kernels = (list(filter(None, text.split(","))) for text in (options.models, options.kernels))
    rows: list[Row] = []
    with Progress("generality", len(models) + len(kernels)) as progress:
        for name in models:
            progress.say(name)
            rows += of_model(MODELS[name], options.rounds)
            progress.step()
        for name in kernels:
            progress.say(name)
            rows += of_kernel(PROGRAMS[name], options.max_elements, options.rounds)
            progress.step()
    groups = {name: [row for row in rows if row["name"] == name] for name in (*models, *kernels)}
    groups["all models"] = [row for row in rows if row["name"] in models]
    groups["all kernels"] = [row for row in rows if row["name"] in kernels]
    columns = ["", "sizes >= 2", "worst", "at", "size 1", "worst", "at"]
    print(table(columns, [[name, *summary(group)] for name, group in groups.items() if group]))
    if options.out:
        write_result(options.out, "generality", rows)


if __name__ == "__main__":
    main()
