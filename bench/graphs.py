"""Graphs compiled: each model, from each of five first shapes, over all its shapes; symshape against the framework.

    python bench/graphs.py [--models bert,t5] [--backend symshape] [--out bench/results/graphs.json]

The framework's own count (`aot_eager`, `eager`) is taken with the same settings in the same run. Sizes of 1 are counted
apart: the framework gives them graphs of their own.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import asdict, dataclass

import torch

from symshape.tools.measure import Graphs, compile_for, write_result
from symshape.tools.terminal import Progress, table
from symshape.tools.zoo import MODELS, Model, Shape


@dataclass(frozen=True)
class Row:
    model: str
    backend: str
    first: Shape
    without_ones: int
    with_ones: int
    breaks: int
    recompiles: int
    errors: tuple[str, ...]


def count(model: Model, module: torch.nn.Module, backend: str, first: Shape) -> Row:
    """Compile at ``first``, then run every shape: those without a size of 1, then the others."""
    errors: list[str] = []
    with Graphs() as graphs, torch.no_grad():
        compiled = compile_for(backend, module)

        def run(shapes: tuple[Shape, ...]) -> int:
            for shape in shapes:
                try:
                    compiled(**model.inputs(shape))
                except Exception as error:  # noqa: BLE001 - a failing shape is a result, and the next one is measured
                    errors.append(f"{model.describe(shape)}: {type(error).__name__}: {str(error).splitlines()[0]}")
            return graphs.read().graphs

        without = run((first, *model.large_shapes))
        everything = run(model.one_shapes)
    breaks = sum(graphs.breaks.values())
    return Row(model.name, backend, first, without, everything, breaks, graphs.recompiles, tuple(errors))


def _cell(row: Row, column: str) -> object:
    value = getattr(row, column)
    return {"first": "x".join(map(str, row.first)), "errors": len(row.errors)}.get(column, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="symshape")
    parser.add_argument("--against", default="aot_eager,eager")
    parser.add_argument("--firsts", type=int, default=5, help="how many of the five first shapes")
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    names = options.models.split(",")
    backends = [options.backend, *filter(None, options.against.split(","))]
    rows = []
    with Progress("graphs", len(names) * len(backends) * options.firsts) as progress:
        for name in names:
            model = MODELS[name]
            module = model.build()
            for backend in backends:
                for first in model.first_shapes[: options.firsts]:
                    progress.say(f"{name} {backend} from {model.describe(first)}")
                    rows.append(count(model, module, backend, first))
                    progress.step()
    columns = ("model", "backend", "first", "without_ones", "with_ones", "breaks", "recompiles", "errors")
    print(table([name.replace("_", " ") for name in columns], [[_cell(row, name) for name in columns] for row in rows]))
    for error in sorted({f"{row.model} {row.backend} {text}" for row in rows for text in row.errors}):
        print(error)
    if options.out:
        write_result(options.out, "graphs", [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
