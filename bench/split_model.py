"""A model of the time of a reduction that is split among programs on a GPU; the planner's counts are compared with its
best.

    python -m bench.split_model          # prints the table: the planner's count against the best

A kernel reduces ``outer`` rows of ``reduced`` points each. Every row is shared by k programs, each of which reads
``bytes``. A multiprocessor runs up to 8 of them at a time (2048 threads), as fast as one program can read, or as its
share of the memory's bandwidth allows:

    T(k) = launch + rounds * START + max(rounds * bytes / PROGRAM, programs * bytes / SHARE) + second stage
    programs = ceil(outer*k / processors)                                 rounds = ceil(programs / RESIDENT)
    second stage (k > 1) = launch + ceil(outer / processors) * (START + k * PARTIAL / SHARE)

The constants are those of one kind of GPU (H200; an H100 differs in bandwidth only). PROGRAM was measured there: a row
of 400 MB is summed by one program in 21.4 ms (bench/results/gpu_h200.json). The others are public figures:
132 multiprocessors and 4.8 TB/s (NVIDIA's data sheet), of which streaming kernels reach about 4 TB/s; 3.5 us from one
launch to the next; 1 us until a program has its first data and, at its end, its sums (memory latency of about 0.7 us
and the combination across warps).
"""

from __future__ import annotations

import functools
from typing import Final

import numpy

from symshape.analysis.access_patterns import Access, KernelAccesses
from symshape.analysis.loops import Arg, Dim
from symshape.dialects.plans import PROCESSORS as PROCESSORS_NAME
from symshape.passes.plans.plan_reductions import PlanReductions
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr

PROCESSORS: Final = 132
SHARE: Final = 4.0e12 / PROCESSORS  # bytes per second of one multiprocessor
PROGRAM: Final = 19e9  # bytes per second of one program
RESIDENT: Final = 8  # programs of 256 threads on a multiprocessor at a time
START: Final = 1.0e-6  # seconds of a program before and after its stream of data
LAUNCH: Final = 3.5e-6  # seconds
ITEM: Final = 4  # bytes of a point
PARTIAL: Final = 4  # bytes of a partial result
# More programs than this for each multiprocessor are never the best: their starts alone cost more than they gain.
_MOST_WAVES: Final = 64


def seconds(outer: int, reduced: int, splits: int | numpy.ndarray) -> float | numpy.ndarray:
    """T(k) for a count of splits, or for an array of them."""
    k = numpy.asarray(splits, dtype=numpy.int64)
    programs = -(-outer * k // PROCESSORS)
    rounds, size = -(-programs // RESIDENT), -(-reduced // k) * ITEM
    first = rounds * START + numpy.maximum(rounds * size / PROGRAM, programs * size / SHARE)
    second = LAUNCH + -(-outer // PROCESSORS) * (START + k * PARTIAL / SHARE)
    result = LAUNCH + first + numpy.where(k > 1, second, 0.0)
    return float(result) if result.ndim == 0 else result


def best(outer: int, reduced: int) -> tuple[int, float]:
    """(k, T(k)) of the best count, whatever workspace it needs."""
    most = max(1, min(reduced, _MOST_WAVES * PROCESSORS // outer + 1))
    times = seconds(outer, reduced, numpy.arange(1, most + 1))
    at = int(numpy.argmin(times))
    return at + 1, float(numpy.atleast_1d(times)[at])


def grid() -> list[tuple[int, int]]:
    """(outer, reduced): powers of ten, primes near them, and counts just beyond full waves."""
    outers = [1, 2, 3, 5, 7, 13, 31, 61, 66, 67, 89, 97, 100, 127, 131, 132, 133, 157, 176, 197, 199, 263, 264, 265,
              313, 397, 529, 1009, 1321, 10_007, 100_003, 1_000_003]  # fmt: skip  # fmt: skip
    reduced = [1_000, 1_009, 3_163, 10_000, 10_007, 31_627, 32_768, 50_257, 65_537, 99_991, 100_000, 316_223, 1_000_000,
               1_000_003, 3_162_277, 10_000_000, 10_000_019, 31_622_777, 100_000_000, 100_000_007, 316_227_767,
               999_999_937, 1_000_000_000]  # fmt: skip  # fmt: skip
    return [(o, r) for o in outers for r in reduced]


def row_sum() -> KernelAccesses:
    """A sum over rows of float32, as the planner sees it."""
    outer, reduced, one = Expr.symbol("s0"), Expr.symbol("s1"), Expr.const(1)
    dims = (Dim("d0", outer, False), Dim("d1", reduced, True))
    arguments = (Arg("in0", "f32", False, (outer, reduced), (reduced, one)), Arg("out0", "f32", True, (outer,), (one,)))
    address = Expr.symbol("d0") * reduced + Expr.symbol("d1")
    accesses = (Access(0, address, False, False), Access(1, Expr.symbol("d0"), True, True))
    return KernelAccesses("row_sum", dims, arguments, accesses, ("s0", "s1"), 1, 1, PARTIAL, ())


def planned(outer: int, reduced: int) -> int:
    """The planner's count: 1 where it does not split."""
    split = _planned_split()
    assert split is not None
    condition, splits = split
    values = {"s0": outer, "s1": reduced, PROCESSORS_NAME: PROCESSORS}
    return splits.evaluate(values) if condition.evaluate(values) else 1


@functools.cache
def _planned_split() -> tuple[Condition, Expr] | None:
    return PlanReductions().split(row_sum(), xblock=1, rblock=2048)


def main() -> None:
    """Prints both counts of each case and their times, the worst ratio last."""
    worst = 0.0
    for outer, reduced in grid():
        count = planned(outer, reduced)
        k, time = best(outer, reduced)
        own = float(seconds(outer, reduced, count))
        worst = max(worst, own / time)
        print(f"{outer:9d} x {reduced:10d}: {count:5d} splits, {own * 1e6:13.1f} us; "
              f"best {k:5d}, {time * 1e6:13.1f} us; {own / time:5.2f}x")  # fmt: skip
    print(f"worst {worst:.2f}x")


if __name__ == "__main__":
    main()
