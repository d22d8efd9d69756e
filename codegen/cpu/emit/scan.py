"""Scans: the points of a row in order, several rows at a time.

Carried values stay in registers, and threads take different rows: results do not depend on the number of threads. Where
neighbouring rows are contiguous in memory (a scan along the first dim of a matrix), or a step is long, a unit is some
vectors of rows. Else it is a row, of which a vector of points is loaded and stored at once (`scan_points`). Where the
chain from point to point is latency-bound, or what is read is not contiguous, several rows are interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from symshape.analysis.loops import Dim, LoopKernel
from symshape.codegen.cpu.emit import associative_scan, scan_points, types
from symshape.codegen.cpu.emit.body import for_units
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.emit.sweep import Values, instruction, peel, side_by_side
from symshape.codegen.cpu.schedule.layout import BLOCK_INDEX, LanePlan
from symshape.codegen.cpu.schedule.sweep_order import access_cost, weight
from symshape.prover.numbers.expr import Expr, product

_COPIES: Final = 4  # vectors of rows of a unit: whole cache lines of neighbours
_LONG: Final = 12  # of a step, in cheap operations: from here on rows are worth reading with gathers
_TURNS: Final = 4  # rows by turns: an addition waits for the one before as long as four take
_TURNED: Final = 2  # the cost of a vector of neighbours that is turned round
_FEW: Final = 2  # rows that take less time one by one than as a vector with gathers


@dataclass(frozen=True)
class Plan(LanePlan):
    """The loop order. ``lane``: the parallel dim along the lanes, of which a unit has ``block`` indices; None if a unit
    is one row. ``along``: the reduced dim along the lanes instead, of a row, or of ``block`` interleaved rows; None if
    the points of a row are not contiguous. ``gathers``: the points of the lane dim are not contiguous."""

    along: Dim | None = None
    gathers: bool = False

    @property
    def work(self) -> Expr:
        """The cost of a unit, in cheap vector operations."""
        return product(dim.size for dim in self.kernel.dims) * sum(map(weight, self.kernel.code))


def plan(kernel: LoopKernel, width: int) -> Plan:
    """Chooses the loop order; ``width``: lanes of a vector."""
    parallel = [dim for dim in kernel.dims if not dim.reduced]
    reduced = [dim for dim in kernel.dims if dim.reduced]
    if parallel and _lie_side_by_side(kernel, parallel[-1]):
        return Plan(kernel, parallel[-1], _COPIES * width)
    along = reduced[-1] if reduced and _lie_side_by_side(kernel, reduced[-1]) else None
    if kernel.is_associative_scan:
        if along is not None and len(reduced) == 1:
            return Plan(kernel, None, 1, along)
        return Plan(kernel, parallel[-1], _COPIES * width, gathers=True) if parallel else Plan(kernel, None, 1)
    chain, _ = scan_points.recurrence(kernel)
    if parallel and sum(map(weight, chain)) >= _LONG:
        return Plan(kernel, parallel[-1], width, gathers=True)
    is_latency_bound = scan_points.is_latency_bound(kernel)
    if parallel and along is not None and is_latency_bound:
        return Plan(kernel, parallel[-1], _TURNS, along)
    if reduced and along is None and not is_latency_bound and _lie_side_by_side(kernel, reduced[-1], "store"):
        # Vectors of points are worth gathers. Neighbouring rows of a transposed tensor share cache lines.
        return Plan(kernel, parallel[-1], _TURNS, reduced[-1]) if parallel else Plan(kernel, None, 1, reduced[-1])
    return Plan(kernel, None, 1, along)


def _lie_side_by_side(kernel: LoopKernel, dim: Dim, *kinds: str) -> bool:
    """Whether all that is loaded and stored (or one of both) is contiguous along the dim or does not depend on it. What
    is loaded may run backwards: the gradient of a sum along rows does."""
    kinds = kinds or ("load", "store")
    accesses = [i for i in kernel.code if i.op in kinds and not i.row and i.address is not None]
    return all(access_cost(instr, dim.name) <= _TURNED for instr in accesses)


Step = Callable[[list[list[str]]], list[list[str]]]


def compute(state: State, plan: Plan, begin: str, end: str) -> None:
    """Writes the units in [begin, end)."""
    writer, pure, lane = state.writer, state.writer.pure, plan.lane

    def unit(_: str, counters: dict[str, str]) -> None:
        state.uniform_depth = writer.depth
        if lane is None:
            _points_of_rows(state, plan, [{}])
            return
        length, size = state.constant(plan.block, "i64"), scalar(state, lane.size)
        first = pure(f"arith.muli {counters[BLOCK_INDEX]}, {length} : i64")
        last = pure(f"arith.addi {first}, {length} : i64")
        whole = pure(f"arith.cmpi sle, {last}, {size} : i64")

        def rows(full: bool) -> list[str]:
            if plan.along is None:
                _rows(state, plan, lane, first, size, full)
            else:
                steps = [pure(f"arith.addi {first}, {state.constant(k, 'i64')} : i64") for k in range(plan.block)]
                _points_of_rows(state, plan, [{lane.name: row} for row in steps])
            return []

        def row(index: str, _: list[str]) -> list[str]:
            _points_of_rows(state, plan, [{lane.name: index}])
            return []

        def one_by_one() -> list[str]:
            return writer.loop((first, size, state.constant(1, "i64")), [], row)

        def rest() -> list[str]:
            if plan.along is not None:
                return one_by_one()
            if not plan.gathers:
                return rows(False)
            limit = pure(f"arith.addi {first}, {state.constant(_FEW, 'i64')} : i64")
            few = pure(f"arith.cmpi sle, {size}, {limit} : i64")
            return writer.branch(few, [], one_by_one, lambda: rows(False))

        writer.branch(whole, [], lambda: rows(True), rest)

    for_units(state, plan.counters, begin, end, unit)


def _points_of_rows(state: State, plan: Plan, rows: Sequence[dict[str, str]]) -> None:
    """Interleaved rows, each with its index: vectors of their points, then the remaining points."""
    kernel, values = plan.kernel, []
    for row in rows:
        state.symbols.update(row)
        values.append(_row_values(state, kernel))
    if kernel.is_associative_scan:
        associative_scan.Rows(state, values, along=plan.along).run()
        return
    carries = scan_points.carries(kernel)
    start = [state.constant(one.start, types.register(one.dtype)) for one in carries]
    kinds = [types.register(one.dtype) for one in carries]
    reduced = [dim for dim in kernel.dims if dim.reduced]

    def each(step: Callable[[Values, list[str]], list[str]], names: list[list[str]]) -> list[list[str]]:
        def one(k: int) -> list[str]:
            state.symbols.update(rows[k])
            return step(dict(values[k]), names[k])

        return state.writer.interleave([partial(one, k) for k in range(len(rows))])

    def point(names: list[list[str]]) -> list[list[str]]:
        return each(lambda values, current: scan_points.point(state, kernel, values, current), names)

    if plan.along is None:
        _points(state, reduced, [start] * len(rows), kinds, point)
        return
    along = plan.along

    def vectors(names: list[list[str]]) -> list[list[str]]:
        zero, one, end = state.constant(0, "i64"), state.constant(1, "i64"), scalar(state, along.size)
        whole = peel(state, zero, end, state.width)

        def vector(names: list[list[str]]) -> list[list[str]]:
            return each(lambda values, current: scan_points.vector(state, along, kernel, values, current), names)

        after = _loop(state, along, (zero, whole, state.constant(state.width, "i64")), names, kinds, vector)
        return _loop(state, along, (whole, end, one), after, kinds, point)

    _points(state, reduced[:-1], [start] * len(rows), kinds, vectors)


def _rows(state: State, plan: Plan, lane: Dim, first: str, end: str, full: bool) -> None:
    """Vectors of rows from ``first``; lanes at or after ``end`` are inactive, unless all are ``full``."""
    kernel, copies = plan.kernel, plan.block // state.width

    values = side_by_side(state, lane, first, end, lambda k: _row_values(state, kernel), copies=copies, full=full)
    if kernel.is_associative_scan:
        associative_scan.Rows(state, values, lane=(lane, first, end, full)).run()
        return
    carries = scan_points.carries(kernel)
    start = [state.splat(one.start, types.register(one.dtype)) for one in carries]
    kinds = [state.vector(types.register(one.dtype)) for one in carries]

    def step(names: list[list[str]]) -> list[list[str]]:
        return side_by_side(
            state,
            lane,
            first,
            end,
            lambda k: scan_points.point(state, kernel, dict(values[k]), names[k]),
            copies=copies,
            full=full,
        )

    _points(state, [dim for dim in kernel.dims if dim.reduced], [start] * copies, kinds, step)


def _row_values(state: State, kernel: LoopKernel) -> Values:
    values: Values = {}
    for instr in kernel.code:
        if instr.row:
            instruction(state, instr, values)
    return values


def _points(state: State, dims: Sequence[Dim], start: list[list[str]], kinds: list[str], step: Step) -> None:
    """Loops over reduced dims; ``step`` maps the carried values of each vector or row to the next ones."""

    def nest(dims: Sequence[Dim], names: list[list[str]]) -> list[list[str]]:
        if not dims:
            state.uniform_depth = state.writer.depth
            return step(names)
        bounds = state.constant(0, "i64"), scalar(state, dims[0].size), state.constant(1, "i64")
        return _loop(state, dims[0], bounds, names, kinds, lambda current: nest(dims[1:], current))

    nest(dims, start)


def _loop(
    state: State, dim: Dim, bounds: tuple[str, str, str], names: list[list[str]], kinds: list[str], step: Step
) -> list[list[str]]:
    """A loop over a reduced dim."""
    count = len(kinds)

    def grouped(flat: list[str]) -> list[list[str]]:
        return [flat[k * count : (k + 1) * count] for k in range(len(names))]

    def inside(index: str, current: list[str]) -> list[str]:
        state.symbols[dim.name], state.uniform_depth = index, state.writer.depth
        return [name for part in step(grouped(current)) for name in part]

    carried = zip([name for part in names for name in part], kinds * len(names), strict=True)
    return grouped(state.writer.loop(bounds, list(carried), inside))
