"""``associative_scan`` on a CPU: the native kernel against PyTorch's own path, AOTAutograd without a backend.

    python bench/associative_scan.py [--elements 1000000] [--threads 1] [--rounds 5] [--out FILE.json]

A running sum, and a linear recurrence of pairs, in the generic mode. A figure is the median of the rounds' processor
time; ways take turns, and results are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan

import symshape
from symshape.tools.measure import relative_error, write_result
from symshape.tools.terminal import table


def running_sum(x: Any, y: Any) -> Any:
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


def recurrence(x: Any, y: Any) -> Any:
    """``h[i] = x[i] * h[i - 1] + y[i]``"""
    return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, y), 0, combine_mode="generic")[1]


def seconds(call: Any, *args: Any) -> float:
    started = time.process_time()
    call(*args)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    x, y = torch.rand(options.elements), torch.randn(options.elements)
    rows = []
    for function in (running_sum, recurrence):
        ways = {
            "symshape": symshape.compile(function),
            "library": torch.compile(function, backend="aot_eager", dynamic=True, fullgraph=True),
        }
        found = [way(x, y) for way in ways.values()]
        rounds = [{name: seconds(way, x, y) for name, way in ways.items()} for _ in range(options.rounds)]
        times = {name: 1e3 * statistics.median(one[name] for one in rounds) for name in ways}
        row = {"program": function.__name__, **{f"{name}, ms": value for name, value in times.items()}}
        row |= {"library / symshape": times["library"] / times["symshape"], "error": relative_error(*found)}
        rows.append(row)
    print(table(list(rows[0]), [list(row.values()) for row in rows]))
    if options.out:
        write_result(options.out, "associative_scan", rows)


if __name__ == "__main__":
    main()
