"""Whether several short rows share a vector, and what a point costs then.

A row is the points of the innermost one or two dims. Rows of fewer points than a vector has lanes would leave a part of
each vector empty. Their length may be known at run time only; `codegen/cpu/emit/packed_rows.py` has the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.codegen.cpu.objects.target import Target
from symshape.codegen.cpu.schedule.sweep_order import access_cost, weight
from symshape.prover.numbers.expr import Expr, product

# In cheap vector operations: a read that is not contiguous, a condition, the start of a row that is a unit of work.
_PERMUTED, _CONDITION, _UNIT = 4, 1, 10


def lane_stride(strides: Mapping[str, Expr], sizes: dict[str, Expr], rows: str) -> Expr | None:
    """Elements between neighbouring points of packed rows, for strides along ``rows`` and along the inner dims, whose
    ``sizes`` are given, outermost first; None if the distances differ."""
    one = step = strides[next(reversed(sizes))]
    for name in reversed(sizes):
        if strides[name] != step:
            return None
        step = step * sizes[name]
    return one if strides[rows] == step else None


def candidates(kernel: LoopKernel) -> Iterator[tuple[Dim, tuple[Dim, ...]]]:
    """(rows, inner dims) of which whole rows may share vectors: two inner dims, then one. All stores are contiguous."""
    computed = any(instr.op in ("extract", "reduce", "carry", "scatter") for instr in kernel.code)
    if computed or any(dim.reduced for dim in kernel.dims):
        return
    stores = [instr for instr in kernel.code if instr.op == "store"]
    for count in (2, 1):
        if len(kernel.dims) > count:
            rows, *inner = kernel.dims[-count - 1 :]
            if all(_stride(instr, rows, inner) == 1 for instr in stores):
                yield rows, tuple(inner)


def _stride(instr: Instr, rows: Dim, inner: Sequence[Dim]) -> Expr | None:
    assert instr.address is not None
    strides = {dim.name: instr.address.coefficient(dim.name) for dim in (rows, *inner)}
    known = {name: stride for name, stride in strides.items() if stride is not None}
    return None if len(known) < len(strides) else lane_stride(known, {dim.name: dim.size for dim in inner}, rows.name)


def cost(kernel: LoopKernel, rows: Dim, inner: Sequence[Dim], target: Target) -> float | None:
    """The cost of a vector of points, for rows of a known length; None for others, for rows that are a vector or more,
    and where each access would have a slow mask."""
    length, width = product(dim.size for dim in inner).as_int(), target.lanes
    if length is None or not 1 <= length < width or width % length and not target.fast_masks:
        return None
    total = 0
    for instr in kernel.code:
        total += weight(instr) + _CONDITION * len(instr.mask)
        if instr.address is not None and instr.op in ("load", "index"):
            stride = _stride(instr, rows, inner)
            total += 0 if stride is not None and stride.as_int() in (0, 1) else _PERMUTED
    return total * width / (width // length * length)


def cost_of_others(kernel: LoopKernel, lane: Dim, count: int, shuffled: Mapping[Instr, int], width: int) -> float:
    """The cost of a vector of points without packed rows: of a kernel in which ``count`` points were unrolled, or whose
    rows are units of work. ``shuffled``: the accesses that are made together, and how many."""
    total = 0
    for instr in kernel.code:
        total += weight(instr) + (shuffled[instr] - 1 if instr in shuffled else access_cost(instr, lane.name))
    size = lane.size.as_int()
    if count > 1 or size is None:
        return total / count
    return (total + _UNIT) * max(1.0, width / size)
