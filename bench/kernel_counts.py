"""Kernels and library calls of each model's forward graph, beside Inductor's kernels for the same model.

    python bench/kernel_counts.py [--models bert,t5] [--out bench/results/kernel_counts.json]

A kernel of ours is a launch in the program; one of Inductor's is a scheduler node left after fusion that is neither a
no-op nor an extern call. Both compile with dynamic sizes at a first shape whose sizes all differ.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field

import torch
from inductor_nodes import watch_inductor

from symshape.tools.measure import write_result
from symshape.tools.terminal import Progress, heading, table
from symshape.tools.zoo import MODELS, Model


@dataclass
class Row:
    model: str
    kernels: list[int] = field(default_factory=list)
    distinct: list[int] = field(default_factory=list)
    library_calls: list[dict[str, int]] = field(default_factory=list)
    inductor_kernels: list[int] = field(default_factory=list)
    inductor_library_calls: list[dict[str, int]] = field(default_factory=list)


def measure_inductor(model: Model, row: Row) -> None:
    torch._dynamo.reset()
    with watch_inductor() as lowered, torch.no_grad():
        torch.compile(model.build(), backend="inductor", dynamic=True)(**model.inputs(model.first_shapes[0]))
    row.inductor_kernels = [len(graph.kernels) for graph in lowered]
    row.inductor_library_calls = [dict(Counter(graph.library_calls)) for graph in lowered]


def measure_symshape(model: Model, row: Row) -> None:
    import symshape

    torch._dynamo.reset()
    with torch.no_grad():
        report = symshape.explain(model.build(), **model.inputs(model.first_shapes[0]))
    row.kernels = [graph.launches for graph in report.graphs]
    row.distinct = [len(graph.kernels) for graph in report.graphs]
    row.library_calls = [dict(Counter(graph.library_calls)) for graph in report.graphs]


MEASURES = {"symshape": measure_symshape, "inductor": measure_inductor}


def print_calls(title: str, calls: dict[str, list[dict[str, int]]]) -> None:
    print(heading(title))
    for name, graphs in calls.items():
        for index, graph in enumerate(graphs):
            listed = ", ".join(f"{count} {target}" for target, count in sorted(graph.items(), key=lambda x: -x[1]))
            print(f"  {name}[{index}]: {listed or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--only", choices=sorted(MEASURES), help="measure one side")
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    sides = [options.only] if options.only else list(MEASURES)
    rows = [Row(name) for name in options.models.split(",")]
    with Progress("kernel counts", len(rows) * len(sides)) as progress:
        for row in rows:
            for side in sides:
                progress.say(f"{row.model} {side}")
                MEASURES[side](MODELS[row.model], row)
                progress.step()
    cells = []
    for row in rows:
        ours, theirs = sum(row.kernels), sum(row.inductor_kernels)
        ratio = ours / theirs if ours and theirs else "-"
        called = sum(sum(graph.values()) for graph in row.library_calls)
        extern = sum(sum(graph.values()) for graph in row.inductor_library_calls)
        cells.append([row.model, ours, sum(row.distinct), theirs, ratio, called, extern])
    header = ["model", "kernels", "distinct", "inductor kernels", "ratio", "library calls", "inductor extern calls"]
    print(table(header, cells))
    print_calls("library calls, by graph", {row.model: row.library_calls for row in rows})
    print_calls("Inductor's extern calls, by graph", {row.model: row.inductor_library_calls for row in rows})
    if options.out:
        write_result(options.out, "kernel_counts", [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
