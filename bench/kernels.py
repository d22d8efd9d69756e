"""Single kernels at every size: eager, Inductor (dynamic and static) and symshape, interleaved in one run.

    python bench/kernels.py [--kernels softmax,gelu] [--max-elements 1e6] [--rounds 5] [--out FILE.json [--add]]

The dynamic compilations meet a small size first and are never dropped: one graph serves the sweep (counted). The static
one is compiled for each size by itself. Times are whole calls, guards and all. A figure is the median over rounds; a
ratio the median of the rounds' ratios. Every result is compared with float64: where it is a few numbers, for several
draws of the inputs (`accuracy`), all sides for the same ones. ``--out`` also draws FILE.png.
``--clock processor`` with ``--threads 1`` leaves out what other processes do to the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accuracy import Errors, accurate, draws
from kernel_programs import PROGRAMS, KernelProgram, Shape, Tensors, elements, meet
from torch._dynamo.utils import counters

import symshape
from symshape.errors import OptionError
from symshape.tools import plot_results
from symshape.tools.measure import CLOCKS, Clock, geometric_mean, samples, tensors_of, write_result
from symshape.tools.plots import save
from symshape.tools.terminal import Progress, heading, table

RUNS = ("eager", "inductor_dynamic", "inductor_static", "symshape")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_SMALL = 10_000  # elements: below, a call is mostly overhead and the difference counts, not the ratio


@dataclass(frozen=True)
class Row:
    """``ratios``: symshape's time over theirs; ``errors``: against float64, see `accuracy.Errors`;
    ``repeats``: two runs gave the same bits."""

    kernel: str
    dtype: str
    shape: Shape
    elements: int
    seconds: dict[str, float]
    ratios: dict[str, float]
    errors: dict[str, float]
    repeats: bool

    @property
    def accurate(self) -> bool:
        """At most twice eager's error, or rounding."""
        return accurate(self.errors["symshape"], self.errors["eager"], DTYPES[self.dtype])

    @property
    def slower_by(self) -> float:
        """Microseconds over Inductor static."""
        return 1e6 * (self.seconds["symshape"] - self.seconds["inductor_static"])


class Sweep:
    """One program: its dynamic compilations, which live as long as this, and a static one for each shape."""

    def __init__(self, program: KernelProgram, dtype: str) -> None:
        torch._dynamo.reset()
        self.program, self.dtype = program, dtype
        self.graphs = dict.fromkeys(("inductor_dynamic", "symshape"), 0)
        self.compiled: dict[str, Callable[..., Any]] = {
            "eager": program.run,
            "inductor_dynamic": torch.compile(program.copy(), backend="inductor", dynamic=True),
            "symshape": symshape.compile(program.copy()),
        }
        for name in self.graphs:
            before = counters["stats"]["unique_graphs"]
            meet(self.compiled[name], self._inputs(program.first))
            self.graphs[name] = counters["stats"]["unique_graphs"] - before

    def _inputs(self, shape: Shape, seed: int = 0) -> Tensors:
        return self.program.inputs(shape, dtype=DTYPES[self.dtype], seed=seed)

    def _call(self, name: str, inputs: Tensors) -> Any:
        """A call, in which new graphs are counted."""
        before = counters["stats"]["unique_graphs"]
        result = self.compiled[name](*inputs)
        if name in self.graphs:
            self.graphs[name] += counters["stats"]["unique_graphs"] - before
        return result

    def measure(self, shape: Shape, rounds: int, clock: Clock) -> Row:
        """One row of the sweep."""
        self.compiled["inductor_static"] = torch.compile(self.program.copy(), backend="inductor", dynamic=False)
        errors, repeats = self._errors(shape)
        inputs = self._inputs(shape)
        found = samples({name: partial(self.compiled[name], *inputs) for name in RUNS}, rounds, clock=clock)
        ratios = {
            name: statistics.median(ours / theirs for ours, theirs in zip(found["symshape"], found[name]))
            for name in RUNS
            if name != "symshape"
        }
        seconds = {name: statistics.median(values) for name, values in found.items()}
        return Row(self.program.name, self.dtype, shape, elements(shape), seconds, ratios, errors, repeats)

    def _errors(self, shape: Shape) -> tuple[dict[str, float], bool]:
        """The error of every way to run it, and whether two runs of symshape gave the same bits."""
        errors, repeats, seed, count = {name: Errors() for name in RUNS}, True, 0, 1
        while seed < count:
            inputs = self._inputs(shape, seed)
            expected = self.program.reference(inputs)
            count = draws(expected, elements(shape))
            for name in RUNS:
                result = self._call(name, inputs)
                errors[name].add(result, expected)
                if name == "symshape":
                    again = self._call(name, inputs)
                    repeats &= all(map(_same_bits, tensors_of(result), tensors_of(again)))
                    del again
                del result
            seed += 1
        return {name: one.largest() for name, one in errors.items()}, repeats


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    size = a.element_size()
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return torch.equal(a.view(kind), b.view(kind))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures that count, of some kernels."""
    large = [row for row in rows if row.elements >= _SMALL]
    small = [row for row in rows if row.elements < _SMALL]
    worst = max(large, key=lambda row: row.ratios["inductor_static"], default=None)
    return {
        "over_static": geometric_mean(row.ratios["inductor_static"] for row in rows),
        "over_static_large": geometric_mean(row.ratios["inductor_static"] for row in large) if large else None,
        "worst": worst.ratios["inductor_static"] if worst else None,
        "worst_at": f"{worst.kernel} {'x'.join(map(str, worst.shape))}" if worst else None,
        "small_slower_us": max((row.slower_by for row in small), default=None),
        "over_dynamic": geometric_mean(row.ratios["inductor_dynamic"] for row in rows),
        "over_eager": geometric_mean(row.ratios["eager"] for row in rows),
        "inaccurate": sum(not row.accurate for row in rows),
        "unrepeatable": sum(not row.repeats for row in rows),
    }


def show(rows: Sequence[Row], graphs: dict[str, dict[str, int]]) -> None:
    """Everything, as tables."""
    for kernel in dict.fromkeys(row.kernel for row in rows):
        count = graphs.get(kernel, {}).get("symshape", "?")
        print(heading(f"{kernel}: microseconds per call (symshape: {count} graph)"))
        body = [
            [
                "x".join(map(str, row.shape)),
                *(1e6 * row.seconds[name] for name in RUNS),
                *(row.ratios[name] for name in RUNS[:-1]),
                row.errors["eager"],
                row.errors["symshape"],
                ("" if row.accurate else "inaccurate ") + ("" if row.repeats else "differs"),
            ]
            for row in rows
            if row.kernel == kernel
        ]
        print(table(["shape", *RUNS, "/ eager", "/ dynamic", "/ static", "eager: error", "error", ""], body))
    print(heading("symshape's time over theirs, geometric means; the worst from 1e4 elements up"))
    groups = {k: [row for row in rows if row.kernel == k] for k in dict.fromkeys(row.kernel for row in rows)}
    found = {name: summary(group) for name, group in (groups | {"all": list(rows)}).items()}
    head = next(iter(found.values()))
    print(table(["kernel", *head], [[name, *one.values()] for name, one in found.items()]))


def plot(rows: Sequence[Row], path: Path) -> None:
    """Time over Inductor static at each size, one panel for each kernel."""
    try:
        save(plot_results.kernels([asdict(row) for row in rows]), path)
    except OptionError as error:
        print(f"no plot: {error}")


def _earlier(path: Path, kernels: Sequence[str]) -> tuple[list[Row], dict[str, dict[str, int]]]:
    """The rows of a result that are not measured again."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": [], "summary": {"graphs": {}}}
    rows = [Row(**{**row, "shape": tuple(row["shape"])}) for row in record["rows"] if row["kernel"] not in kernels]
    return rows, {k: v for k, v in record["summary"]["graphs"].items() if k not in kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default=",".join(PROGRAMS))
    parser.add_argument("--shapes", default="", help="only these: 10007x1,1009x991")
    parser.add_argument("--min-elements", type=float, default=0)
    parser.add_argument("--max-elements", type=float, default=2e8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--out")
    parser.add_argument("--add", action="store_true", help="keep what the file says of other kernels")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)

    names = options.kernels.split(",")
    chosen = {
        name: [s for s in PROGRAMS[name].shapes if options.min_elements <= elements(s) <= options.max_elements]
        for name in names
    }
    if options.shapes:
        only = [tuple(map(int, text.split("x"))) for text in options.shapes.split(",")]
        chosen = {name: [shape for shape in shapes if shape in only] for name, shapes in chosen.items()}
    rows, graphs = _earlier(Path(options.out), names) if options.add else ([], {})
    with Progress("kernels", sum(map(len, chosen.values()))) as progress:
        for name, shapes in chosen.items():
            progress.say(f"{name}: compiling")
            sweep = Sweep(PROGRAMS[name], options.dtype)
            for shape in shapes:
                rows.append(sweep.measure(shape, options.rounds, CLOCKS[options.clock]))
                progress.step(f"{name} {'x'.join(map(str, shape))}")
            graphs[name] = sweep.graphs
    rows.sort(key=lambda row: list(PROGRAMS).index(row.kernel))
    show(rows, graphs)
    if options.out:
        kernels = dict.fromkeys(row.kernel for row in rows)
        figures: dict[str, Any] = {kernel: summary([row for row in rows if row.kernel == kernel]) for kernel in kernels}
        figures["all"] = summary(rows)
        figures["graphs"] = graphs
        write_result(options.out, "kernels", [asdict(row) for row in rows], clock=options.clock, **figures)
        plot(rows, Path(options.out).with_suffix(".png"))


if __name__ == "__main__":
    main()
