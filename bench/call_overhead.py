"""Cost of a call of compiled code: one operator on four elements, by symshape.compile and by torch.compile with
Inductor, in one process and by turns.

    python bench/call_overhead.py [--rounds 40] [--calls 2000]

Prints the smallest time of a round for each (what others do on the machine only adds) and their ratio. Inductor needs
a C++ compiler.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import symshape


def one_op(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _seconds(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        fn(x)
    return (time.perf_counter() - start) / calls


def measure(rounds: int, calls: int) -> dict[str, float]:
    """Seconds for a call, by compiler."""
    # Compiled by both, a function's code would be found behind that of the other.
    functions = {
        "eager": one_op,
        "symshape.compile": symshape.compile(lambda x: x + 1),
        "torch.compile, backend symshape": torch.compile(lambda x: x + 1, backend="symshape", dynamic=True),
        "torch.compile, Inductor": torch.compile(lambda x: x + 1, dynamic=True),
    }
    x = torch.randn(4)
    for fn in functions.values():
        for size in (7, 4):  # both are served by one graph
            torch.testing.assert_close(fn(torch.ones(size)), torch.full((size,), 2.0))
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, fn in functions.items():
            best[name] = min(best[name], _seconds(fn, x, calls))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    best = measure(arguments.rounds, arguments.calls)
    for name, seconds in best.items():
        print(f"{name:34} {seconds * 1e6:6.2f} us")
    print(f"symshape.compile / Inductor: {best['symshape.compile'] / best['torch.compile, Inductor']:.2f}")


if __name__ == "__main__":
    main()
