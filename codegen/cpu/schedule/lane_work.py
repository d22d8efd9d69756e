"""Work that depends on the lanes alone: positions in a table, a window, weights of an interpolation. Rows share it.

Such values are computed for a block of lanes, kept in buffers, and read by several rows. Where elements are read at
positions that depend on the lanes alone, a vector of lanes is followed down the rows instead: then rows share how
elements are read, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from symshape.analysis.loops import EFFECTS, Dim, Instr, LoopKernel
from symshape.codegen.cpu.schedule.sweep_order import Schedule, access_cost, closure, weight

_LEAST = 16  # cheap operations on the lanes alone: less is hidden by the loads and stores of the rows
_SHARE = 4  # and at least this part of what is computed for each lane
_MOST = 4  # buffers
_FREE = ("load", "index", "constant", "arith.index_cast")  # as fast as reading a buffer


@dataclass(frozen=True)
class LaneWork:
    """``rows``: the dim whose indices share the work. ``kept``: the instructions whose values are kept in buffers, and
    ``code``: what computes them; both are empty if a vector of lanes is followed down the rows."""

    rows: Dim
    code: tuple[Instr, ...] = ()
    kept: tuple[Instr, ...] = ()


def find(kernel: LoopKernel, plan: Schedule) -> LaneWork | None:
    """The work that the innermost dim but the lanes' shares; None if there is none, or little."""
    if plan.lane is None or any(dim.reduced for dim in kernel.dims):
        return None
    lane = kernel.dims[plan.lane]
    rows = next((dim for dim in reversed(kernel.dims) if dim is not lane), None)
    if rows is None or rows.size.as_int() == 1:
        return None
    depends = _dependences(kernel, lane)
    of_lanes, of_points, reads = 0, 0, False
    for instr in kernel.code:
        cost, on = weight(instr) + access_cost(instr, lane.name), _on(instr, kernel, lane, depends)
        if instr.op == "extract" and {True} in map(depends.__getitem__, instr.operands) and _apart(instr, depends):
            of_lanes, cost, reads = of_lanes + cost // 2, cost // 2, True  # half is spent on the positions
        if instr.op in EFFECTS or len(on) == 2:
            of_points += cost
        elif on == {True}:
            of_lanes += cost
    if of_lanes < max(_LEAST, of_points // _SHARE):
        return None
    if reads:
        return LaneWork(rows)
    used = {o for i in kernel.code if i.op in EFFECTS or len(_on(i, kernel, lane, depends)) == 2 for o in i.operands}
    kept = [i for i in kernel.code if len(i.results) == 1 and i.results[0] in used and _is_kept(i, depends)]
    found = closure(kernel.code, kept)
    return LaneWork(rows, found.code, tuple(kept)) if 0 < len(kept) <= _MOST else None


def _dependences(kernel: LoopKernel, lane: Dim) -> dict[int, set[bool]]:
    """For each value, whether it depends on the lanes (True is in its set), and on another dim (False is)."""
    depends: dict[int, set[bool]] = {}
    for instr in kernel.code:
        depends.update(dict.fromkeys(instr.results, _on(instr, kernel, lane, depends)))
    return depends


def _on(instr: Instr, kernel: LoopKernel, lane: Dim, depends: dict[int, set[bool]]) -> set[bool]:
    symbols = {name for e in (instr.address, *instr.mask) if e is not None for name in e.symbols}
    own = {dim is lane for dim in kernel.dims if dim.name in symbols}
    return own.union(*(depends[operand] for operand in instr.operands))


def _apart(instr: Instr, depends: dict[int, set[bool]]) -> bool:
    """Whether no index depends on the lanes and on another dim."""
    return all(len(depends[operand]) < 2 for operand in instr.operands)


def _is_kept(instr: Instr, depends: dict[int, set[bool]]) -> bool:
    return depends[instr.results[0]] == {True} and instr.op not in _FREE
