"""Groups of strided accesses that together touch every element: whole vectors, shuffled in registers.

Three loads at 3*d, 3*d + 1 and 3*d + 2 are three contiguous vectors; each value's lanes are shuffled from all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symshape.analysis.loops import Instr
from symshape.machine.targets import CPU_MOST_INTERLEAVED
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class Member:
    """One access of a group of ``stride`` interleaved ones: its index, and the group's number."""

    stride: int
    index: int
    group: int


def find_groups(code: Sequence[Instr], lane: str | None) -> dict[Instr, Member]:
    """The accesses in complete groups, without masks; a group has only loads or only stores."""
    runs: dict[tuple[str, int, int, Expr], dict[int, Instr]] = {}
    for instr in code:
        stride = _stride(instr, lane)
        if stride is not None:
            assert instr.address is not None
            offset = instr.address.constant
            runs.setdefault((instr.op, instr.arg, stride, instr.address - offset), {})[offset] = instr
    found: dict[Instr, Member] = {}
    for (_, _, stride, _), run in runs.items():
        for start in sorted(run):
            group = [run.get(start + k) for k in range(stride)]
            if all(one is not None and one not in found for one in group):
                number = len(found)
                found.update((one, Member(stride, k, number)) for k, one in enumerate(group) if one is not None)
    return found


def _stride(instr: Instr, lane: str | None) -> int | None:
    """The constant stride along the lanes, if it is small; else None."""
    if lane is None or instr.op not in ("load", "store") or instr.address is None or instr.mask:
        return None
    stride = instr.address.coefficient(lane)
    value = None if stride is None else stride.as_int()
    return value if value is not None and 2 <= value <= CPU_MOST_INTERLEAVED else None


def picked(stride: int, index: int, width: int) -> list[list[int]]:
    """Shuffles that pick every ``stride``-th element of ``stride`` vectors, from ``index`` on: each combines the result
    so far with the next vector."""
    sources = [stride * lane + index for lane in range(width)]
    orders = [[source if source < 2 * width else 0 for source in sources]]
    for k in range(2, stride):
        orders.append(
            [
                width + source - k * width if k * width <= source < (k + 1) * width else lane
                for lane, source in enumerate(sources)
            ]
        )
    return orders


def spread(stride: int, part: int, width: int) -> list[list[int]]:
    """The inverse: shuffles that make vector number ``part`` of ``stride`` interleaved values, each combining the
    result so far with the next value."""
    sources = [divmod(part * width + lane, stride) for lane in range(width)]
    orders = [[source + width if which == 1 else source if which == 0 else 0 for source, which in sources]]
    for k in range(2, stride):
        orders.append([width + source if which == k else lane for lane, (source, which) in enumerate(sources)])
    return orders
