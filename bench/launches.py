"""Cost of a kernel's launch from the host program on a CPU, by the number of symbols that the kernel takes.

    python bench/launches.py [--symbols 1,4,16,64] [--rounds 9] [--out bench/results/launches_cpu.json]

Two programs of the same inputs differ in their number of launches alone, each on nine elements. The difference of their
times divided by that of their launches is what one costs: sizes, the result's allocation, packed arguments, the call
and its few operations. Samples are taken in turns, in processor time of one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.measure import samples, write_result
from symshape.tools.report import GraphReport
from symshape.tools.terminal import Progress, table

LIMIT = 10.0  # microseconds
_STEPS = (2, 10)  # of the two programs
_SIZE = 3


def program(steps: int) -> Callable[..., torch.Tensor]:
    """Each step is a kernel that needs every size, and along the other dim than the step before."""

    def run(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        for step in range(steps):
            for other in others:
                x = x * other.shape[0]
            x = x / x.sum(step % 2, keepdim=True)
        return x

    return run


def measure(symbols: int, rounds: int) -> dict[str, Any]:
    """One row: microseconds per launch of a kernel that takes this many symbols and the two of its own sizes."""
    inputs = [torch.ones(_SIZE, _SIZE), *(torch.ones(_SIZE) for _ in range(symbols))]
    compiled, launches = {}, {}
    torch._dynamo.reset()
    for steps in _STEPS:
        reports: list[GraphReport] = []
        backend = partial(symshape_backend, reports=reports)
        compiled[str(steps)] = partial(compile_with(program(steps), backend), *inputs)
        compiled[str(steps)]()
        launches[steps] = sum(graph.launches for graph in reports)
    few, many = _STEPS
    found = samples(compiled, rounds, clock=time.process_time)
    count = launches[many] - launches[few]
    each = [1e6 * (b - a) / count for a, b in zip(found[str(few)], found[str(many)], strict=True)]
    return {"symbols": symbols, "launches": count, "microseconds": statistics.median(each), "samples": each}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--symbols", default="1,4,16,64")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)

    counts = list(map(int, options.symbols.split(",")))
    rows = []
    with Progress("launches", len(counts)) as progress:
        for count in counts:
            progress.say(f"{count} symbols")
            rows.append(measure(count, options.rounds))
            progress.step()
    header = ["symbols", "launches", "microseconds per launch"]
    print(table(header, [[row["symbols"], row["launches"], row["microseconds"]] for row in rows]))
    if options.out:
        write_result(options.out, "launches", rows, limit=LIMIT)
    return int(any(row["microseconds"] > LIMIT for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
