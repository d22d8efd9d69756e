"""Which loops LLVM may unroll, and how often: the annotation of an emitted loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SHORT: Final = 8  # operations of a loop's body


def loop_annotation(body: Sequence[str], carries: bool) -> str:
    """How often LLVM repeats a loop's body: twice if it is short and a reduction, else only where the number of rounds
    is known (a loop of one round is none).

    What could be hoisted or run side by side has been (`Writer`, `interleave`), so that a longer body saves only the
    branch. Left to itself LLVM repeats bodies up to 16 times, which takes half of the time it needs for a kernel.
    Short loops gain by half as many branches: their end is predicted for up to twice as many elements. Those of a sweep
    lose: most often there is one round for each row, or none, and the rounds that are left over have their own tests.
    So do masked loads (1.25 for sums of 131072 rows of 8 elements), whose loops run over rows.
    """
    short = len(body) <= _SHORT and not any(line.endswith("{") or "masked.load" in line for line in body)
    return f"#llvm.loop_annotation<unroll = <{'count = 2 : i32' if short and carries else 'runtimeDisable = true'}>>"
