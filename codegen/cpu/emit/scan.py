"""Scans: the points of a row one after the other, rows side by side.

What is carried from point to point stays in registers, and threads take different rows: results do not depend on
how many there are. Where neighbouring rows lie side by side in memory (a scan along the first dim of a matrix), or
a step is long, a unit is some vectors of rows. Else it is a row, of which a vector of points is read and written at
once; only what a point needs of the one before is computed point by point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit import associative_scan, types
from symshape.codegen.cpu.emit.body import for_units
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction, peel, side_by_side
from symshape.codegen.cpu.schedule.layout import BLOCK_INDEX, unit_count, unit_counters
from symshape.codegen.cpu.schedule.sweep_order import weight
from symshape.prover.numbers.expr import Expr, ceildiv, product

_COPIES: Final = 4  # vectors of rows of a unit: whole cache lines of neighbours
_LONG: Final = 12  # of a step, in cheap operations: from here on rows are worth reading with gathers
_FEW: Final = 2  # rows that take less time one by one than as a vector with gathers


@dataclass(frozen=True)
class Plan:
    """``lane``: the parallel dim that runs over the lanes, of which a unit has ``block``; None where a unit is one row.
    ``along``: the reduced dim of such a row that runs over the lanes; None where its points are not side by side.
    ``gathers``: the points of the lane dim are not side by side."""

    kernel: LoopKernel
    lane: Dim | None
    block: int
    along: Dim | None = None
    gathers: bool = False

    @property
    def counters(self) -> tuple[tuple[str, Expr], ...]:
        """The parts of a unit's number: parallel dims, then the block of the lane dim."""
        blocks = ceildiv(self.lane.size, self.block) if self.lane is not None else None
        return unit_counters((dim for dim in self.kernel.dims if dim is not self.lane), blocks)

    @property
    def units(self) -> Expr:
        return unit_count(self.counters)

    @property
    def work(self) -> Expr:
        """In cheap operations."""
        return product(dim.size for dim in self.kernel.dims) * sum(map(weight, self.kernel.code))


def plan(kernel: LoopKernel, width: int) -> Plan:
    """How the loops lie; ``width``: lanes of a vector."""
    parallel = [dim for dim in kernel.dims if not dim.reduced]
    reduced = [dim for dim in kernel.dims if dim.reduced]
    if parallel and _lie_side_by_side(kernel, parallel[-1]):
        return Plan(kernel, parallel[-1], _COPIES * width)
    along = reduced[-1] if reduced and _lie_side_by_side(kernel, reduced[-1]) else None
    if kernel.is_associative_scan:
        if along is not None and len(reduced) == 1:
            return Plan(kernel, None, 1, along)
        return Plan(kernel, parallel[-1], _COPIES * width, gathers=True) if parallel else Plan(kernel, None, 1)
    chain, _ = recurrence(kernel)
    if parallel and sum(map(weight, chain)) >= _LONG:
        return Plan(kernel, parallel[-1], width, gathers=True)
    return Plan(kernel, None, 1, along)


def _lie_side_by_side(kernel: LoopKernel, dim: Dim) -> bool:
    accesses = [i for i in kernel.code if i.op in ("load", "store") and not i.row and i.address is not None]
    steps = [i.address.coefficient(dim.name) for i in accesses if i.address is not None]
    return all(step is not None and step.as_int() in (0, 1) for step in steps)


def recurrence(kernel: LoopKernel) -> tuple[list[Instr], list[Instr]]:
    """The instructions by which a point's carried values become those of the next, and those that depend on them
    besides."""
    carried = {i.results[0] for i in kernel.code if i.op == "carried"}
    depends = set(carried)
    for instr in kernel.code:
        if not depends.isdisjoint(instr.operands):
            depends.update(instr.results)
    needed: set[int] = set()
    for instr in reversed(kernel.code):
        if instr.op == "carry" or not needed.isdisjoint(instr.results):
            needed.update(instr.operands)
    chain, others = [], []
    for instr in kernel.code:
        if instr.op in ("carried", "carry") or not (depends & needed).isdisjoint(instr.results):
            chain.append(instr)
        elif not depends.isdisjoint(instr.operands):
            others.append(instr)
    return chain, others


Step = Callable[[list[list[str]]], list[list[str]]]


@dataclass(frozen=True)
class _Carry:
    number: int
    dtype: str
    start: int | float | bool


def compute(state: State, plan: Plan, begin: str, end: str) -> None:
    """All of the units in [begin, end)."""
    writer, pure, lane = state.writer, state.writer.pure, plan.lane

    def unit(_: str, counters: dict[str, str]) -> None:
        state.uniform_depth = writer.depth
        if lane is None:
            _row(state, plan)
            return
        length, size = state.constant(plan.block, "i64"), scalar(state, lane.size)
        first = pure(f"arith.muli {counters[BLOCK_INDEX]}, {length} : i64")
        last = pure(f"arith.addi {first}, {length} : i64")
        whole = pure(f"arith.cmpi sle, {last}, {size} : i64")

        def rows(full: bool) -> list[str]:
            _rows(state, plan, lane, first, size, full)
            return []

        def row(index: str, _: list[str]) -> list[str]:
            state.symbols[lane.name] = index
            _row(state, plan)
            return []

        def one_by_one() -> list[str]:
            return writer.loop((first, size, state.constant(1, "i64")), [], row)

        def rest() -> list[str]:
            if not plan.gathers:
                return rows(False)
            limit = pure(f"arith.addi {first}, {state.constant(_FEW, 'i64')} : i64")
            few = pure(f"arith.cmpi sle, {size}, {limit} : i64")
            return writer.branch(few, [], one_by_one, lambda: rows(False))

        writer.branch(whole, [], lambda: rows(True), rest)

    for_units(state, plan.counters, begin, end, unit)


def _row(state: State, plan: Plan) -> None:
    """One row: full vectors of its points, then the remainder."""
    values, kernel = _row_values(state, plan.kernel), plan.kernel
    if kernel.is_associative_scan:
        associative_scan.Rows(state, [values], along=plan.along).run()
        return
    carries = _carries(kernel)
    start = [state.constant(one.start, types.register(one.dtype)) for one in carries]
    kinds = [types.register(one.dtype) for one in carries]
    reduced = [dim for dim in kernel.dims if dim.reduced]

    def point(names: list[list[str]]) -> list[list[str]]:
        return [_point(state, kernel, dict(values), names[0])]

    if plan.along is None:
        _points(state, reduced, [start], kinds, point)
        return
    along = plan.along

    def row(names: list[list[str]]) -> list[list[str]]:
        zero, one, end = state.constant(0, "i64"), state.constant(1, "i64"), scalar(state, along.size)
        whole = peel(state, zero, end, state.width)

        def vector(index: str, current: list[str]) -> list[str]:
            state.symbols[along.name], state.uniform_depth = index, state.writer.depth
            return _vector(state, along, kernel, dict(values), current)

        def single(index: str, current: list[str]) -> list[str]:
            state.symbols[along.name], state.uniform_depth = index, state.writer.depth
            return point([current])[0]

        bounds = zero, whole, state.constant(state.width, "i64")
        after = state.writer.loop(bounds, list(zip(names[0], kinds, strict=True)), vector)
        return [state.writer.loop((whole, end, one), list(zip(after, kinds, strict=True)), single)]

    _points(state, reduced[:-1], [start], kinds, row)


def _vector(state: State, along: Dim, kernel: LoopKernel, values: Values, names: list[str]) -> list[str]:
    """A vector of points of one row. What does not depend on the point before is computed for all of them first, what
    follows from the carried values last."""
    chain, others = recurrence(kernel)
    state.lane = along.name
    for instr in kernel.code:
        if not instr.row and instr not in chain and instr not in others:
            instruction(state, instr, values)
    state.lane = None
    inner = {number: instr for instr in chain for number in instr.results}
    read = {number for instr in chain for number in instr.operands if number not in inner}
    wanted = {number for instr in others for number in instr.operands if number in inner}
    found: dict[int, list[str]] = {number: [] for number in wanted}
    for k in range(state.width):
        at = {number: _element(state, values[number], k) for number in read}
        names = _step(state, kernel, chain, at, names)
        for number in wanted:
            found[number].append(at[number].name)
    for number, elements in found.items():
        values[number] = _gathered(state, elements, inner[number].dtype)
    state.lane = along.name
    for instr in others:
        instruction(state, instr, values)
    state.lane = None
    return names


def _element(state: State, value: Value, k: int) -> Value:
    """Lane ``k`` of a value."""
    pure, kind = state.writer.pure, types.register(value.dtype)
    if value.uniform:
        return value
    if value.stride:
        name = pure(f"arith.addi {value.name}, {state.constant(k * value.stride, kind)} : {kind}")
    else:
        name = pure(f"vector.extract {value.name}[{k}] : {kind} from {state.vector(kind)}")
    return Value(name, value.dtype)


def _gathered(state: State, elements: list[str], dtype: str) -> Value:
    """A scalar for each lane as a vector."""
    kind = types.register(dtype)
    name = state.broadcast(elements[0], kind)
    for k, element in enumerate(elements[1:], 1):
        name = state.writer.pure(f"vector.insert {element}, {name}[{k}] : {kind} into {state.vector(kind)}")
    return Value(name, dtype, uniform=False)


def _rows(state: State, plan: Plan, lane: Dim, first: str, end: str, full: bool) -> None:
    """Vectors of rows from ``first``; lanes at or after ``end`` are inactive, unless all are ``full``."""
    kernel, copies = plan.kernel, plan.block // state.width

    values = side_by_side(state, lane, first, end, lambda k: _row_values(state, kernel), copies=copies, full=full)
    if kernel.is_associative_scan:
        associative_scan.Rows(state, values, lane=(lane, first, end, full)).run()
        return
    carries = _carries(kernel)
    start = [state.splat(one.start, types.register(one.dtype)) for one in carries]
    kinds = [state.vector(types.register(one.dtype)) for one in carries]

    def step(names: list[list[str]]) -> list[list[str]]:
        return side_by_side(
            state,
            lane,
            first,
            end,
            lambda k: _point(state, kernel, dict(values[k]), names[k]),
            copies=copies,
            full=full,
        )

    _points(state, [dim for dim in kernel.dims if dim.reduced], [start] * copies, kinds, step)


def _carries(kernel: LoopKernel) -> list[_Carry]:
    found = (i for i in kernel.code if i.op == "carried")
    started = {i.carry: _Carry(i.carry, i.dtype, i.value) for i in found if i.value is not None}
    return [started[number] for number in sorted(started)]


def _row_values(state: State, kernel: LoopKernel) -> Values:
    values: Values = {}
    for instr in kernel.code:
        if instr.row:
            instruction(state, instr, values)
    return values


def _points(state: State, dims: Sequence[Dim], start: list[list[str]], kinds: list[str], step: Step) -> None:
    """Loops over reduced dims; ``step`` maps the carries of each vector to the next ones."""
    count = len(kinds)

    def nest(dims: Sequence[Dim], names: list[str]) -> list[str]:
        if not dims:
            state.uniform_depth = state.writer.depth
            parts = step([names[k * count : (k + 1) * count] for k in range(len(start))])
            return [name for part in parts for name in part]
        dim, *others = dims

        def inside(index: str, current: list[str]) -> list[str]:
            state.symbols[dim.name] = index
            return nest(others, current)

        bounds = state.constant(0, "i64"), scalar(state, dim.size), state.constant(1, "i64")
        carried = list(zip(names, kinds * len(start), strict=True))
        return state.writer.loop(bounds, carried, inside)

    nest(dims, [name for part in start for name in part])


def _point(state: State, kernel: LoopKernel, values: Values, names: list[str]) -> list[str]:
    """A point of a row, or of a vector of rows; what is carried on."""
    return _step(state, kernel, [instr for instr in kernel.code if not instr.row], values, names)


def _step(state: State, kernel: LoopKernel, code: Sequence[Instr], values: Values, names: list[str]) -> list[str]:
    """The instructions; what is carried on."""
    numbers = {one.number: i for i, one in enumerate(_carries(kernel))}
    after = list(names)
    for instr in code:
        if instr.op == "carried":
            values[instr.results[0]] = Value(names[numbers[instr.carry]], instr.dtype, uniform=state.lane is None)
        elif instr.op == "carry":
            if instr.carry in numbers:
                value = values[instr.operands[0]]
                after[numbers[instr.carry]] = value.name if state.lane is None else state.lanes(value)
        else:
            instruction(state, instr, values)
    return after
