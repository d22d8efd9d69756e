"""Scatters with ascending indices: each row of the destination is combined in registers, and threads share the points.

Whether indices ascend is tested at each call, by a pass over the index that stops at the first descent. If they do, the
points of a row are contiguous. A unit has the rows that start among its points, so no two units write one element;
points are combined in the same order as in the usual form: results are bitwise equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import EFFECTS, Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit import arithmetic, launch, scatter, types
from symshape.codegen.cpu.emit.body import for_units
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction, peel, side_by_side
from symshape.codegen.cpu.schedule.layout import BLOCK_INDEX, unit_count, unit_counters
from symshape.codegen.scatter_kernels import operation
from symshape.prover.numbers.expr import Expr, ceildiv

_LEAST: Final = 1024  # points: to look at the index of fewer gains nothing
_ELEMENTS = 16  # that a row combines on average: with fewer, to see where rows end costs more than is gained
_TESTED = 4096  # points whose order a unit looks at
_POINTS = 2048  # of a unit
_VECTORS = 4  # of a row, side by side


@dataclass(frozen=True)
class Plan:
    """``points``: the dim along which indices may ascend. ``code``: the instructions that compute the index, which the
    instruction ``checked`` checks; ``after``: those that use the checked index. ``own``: all others at a point."""

    kernel: LoopKernel
    points: Dim
    lane: Dim | None
    checked: Instr
    code: tuple[Instr, ...]
    after: tuple[Instr, ...]
    own: tuple[Instr, ...]

    @property
    def rows(self) -> Expr:
        """The size of the destination's dim that is indexed."""
        assert self.checked.address is not None
        return self.checked.address

    @property
    def pays(self) -> tuple[tuple[Expr, Expr], ...]:
        """(more, less) pairs: the form pays if every ``more`` is at least its ``less``."""
        lane = Expr.const(1) if self.lane is None else self.lane.size
        return (self.points.size, Expr.const(_LEAST)), (self.points.size * lane, self.rows * _ELEMENTS)

    @property
    def test_units(self) -> Expr:
        """The number of units of the pass over the index."""
        return ceildiv(self.points.size, _TESTED)

    @property
    def counters(self) -> tuple[tuple[str, Expr], ...]:
        """The parts of the number of a unit of rows: parallel dims, then the block of points."""
        return unit_counters((d for d in self.kernel.dims if d is not self.lane), ceildiv(self.points.size, _POINTS))

    @property
    def units(self) -> Expr:
        return unit_count(self.counters)


def plan(usual: scatter.Plan) -> Plan | None:
    """The plan for a scatter with one checked index that depends on the only reduced dim alone and that only the
    address uses. None for all others, for further data-dependent indices (of one element), and without a combiner."""
    kernel, write = usual.kernel, usual.kernel.scatter
    reduced = [dim for dim in kernel.dims if dim.reduced]
    assert write is not None
    if write.combiner == "set" or len(reduced) != 1 or not (usual.lane is None or usual.vectors):
        return None
    others = [scatter.varies(kernel, dim.name) for dim in kernel.dims if not dim.reduced]
    varying = scatter.varies(kernel, reduced[0].name)
    at = [number for number in write.operands[1:] if number in varying]
    if len(at) != 1 or any(at[0] in found for found in others):
        return None
    positions = {instr.results[0] for instr in kernel.code if instr.op == "index"}
    if not positions.issuperset(number for number in write.operands[1:] if number != at[0]):
        return None
    chain = _needed(kernel.code, at[0])
    checks = [instr for instr in chain if instr.op in EFFECTS]
    if len(checks) != 1 or chain.count(checks[0]) != 1:
        return None
    code = _needed(kernel.code, checks[0].operands[0])
    after = tuple(instr for instr in chain if instr not in code and instr is not checks[0])
    if any(not set(instr.operands) <= {checks[0].results[0], *_results(after)} for instr in after):
        return None
    own = tuple(i for i in kernel.code if i.op != "scatter" and i is not checks[0] and i not in after)
    read = {number for instr in own for number in instr.operands} | {write.operands[0]}
    if not read <= _results(own):  # a point computes with the index that was checked
        return None
    return Plan(kernel, reduced[0], usual.lane, checks[0], code, after, own)


def _needed(code: Sequence[Instr], wanted: int) -> tuple[Instr, ...]:
    """The instructions that a value depends on, in order."""
    numbers, found = {wanted}, []
    for instr in reversed(code):
        if not numbers.isdisjoint(instr.results):
            numbers.update(instr.operands)
            found.append(instr)
    return tuple(reversed(found))


def _results(code: Sequence[Instr]) -> set[int]:
    return {number for instr in code for number in instr.results}


def _index(state: State, plan: Plan, position: str) -> Value:
    """The index of a point, unchecked."""
    state.symbols[plan.points.name] = position
    values: Values = {}
    for instr in plan.code:
        instruction(state, instr, values)
    return values[plan.checked.operands[0]]


def test(state: State, plan: Plan, begin: str, end: str) -> None:
    """Sets the flag if an index in the units [begin, end) is larger than the next one, or out of range."""
    writer, pure = state.writer, state.writer.pure
    flag = writer.emit(launch.word(launch.FLAG_WORD))
    last, one = pure(f"arith.subi {scalar(state, plan.points.size)}, {state.constant(1, 'i64')} : i64"), "i64"

    def unit(number: str, _: list[str]) -> list[str]:
        state.uniform_depth = writer.depth
        first = pure(f"arith.muli {number}, {state.constant(_TESTED, one)} : i64")
        after = pure(f"arith.minsi {pure(f'arith.addi {first}, {state.constant(_TESTED, one)} : i64')}, {last} : i64")
        found = writer.emit(f"llvm.load {flag} atomic monotonic {{alignment = 8 : i64}} : !llvm.ptr -> i64")
        undecided = writer.emit(f"arith.cmpi eq, {found}, {state.constant(0, one)} : i64")

        def look() -> list[str]:
            wrong = _descends(state, plan, first, after)

            def note() -> list[str]:
                value = state.constant(1, "i64")
                writer.effect(f"llvm.store {value}, {flag} atomic monotonic {{alignment = 8 : i64}} : i64, !llvm.ptr")
                return []

            return writer.branch(wrong, [], note)

        writer.branch(undecided, [], look)
        return []

    writer.loop((begin, end, state.constant(1, "i64")), [], unit)


def _descends(state: State, plan: Plan, first: str, last: str) -> str:
    """Whether an index in [first, last] is larger than the next one, or the first or last one is out of range."""
    writer, pure, zero = state.writer, state.writer.pure, state.constant(0, "i64")
    state.lane, state.uniform_depth = None, writer.depth
    size = scalar(state, plan.rows)
    low = writer.emit(f"arith.cmpi slt, {_index(state, plan, first).name}, {zero} : i64")
    high = writer.emit(f"arith.cmpi sge, {_index(state, plan, last).name}, {size} : i64")
    outside = writer.emit(f"arith.ori {low}, {high} : i1")
    vector = state.vector("i64")

    def step(position: str, before: str, kind: str, lane: str | None) -> str:
        state.lane, state.uniform_depth = lane, writer.depth
        following = pure(f"arith.addi {position}, {state.constant(1, 'i64')} : i64")
        names = [_index(state, plan, at) for at in (following, position)]
        after, here = [one.name if lane is None else state.lanes(one) for one in names]
        falls = pure(f"arith.cmpi slt, {after}, {here} : {kind}")
        bools = "i1" if lane is None else state.vector("i1")
        state.lane = None
        return pure(f"arith.ori {before}, {pure(f'arith.extui {falls} : {bools} to {kind}')} : {kind}")

    whole = peel(state, first, last, state.width)
    stride = state.constant(state.width, "i64")
    (found,) = writer.loop(
        (first, whole, stride),
        [(state.splat(0, "i64"), vector)],
        lambda at, carried: [step(at, carried[0], vector, plan.points.name)],
    )
    start = writer.emit(f"vector.reduction <or>, {found} : {vector} into i64")
    (found,) = writer.loop(
        (whole, last, state.constant(1, "i64")),
        [(start, "i64")],
        lambda at, carried: [step(at, carried[0], "i64", None)],
    )
    falls = writer.emit(f"arith.cmpi ne, {found}, {zero} : i64")
    return writer.emit(f"arith.ori {outside}, {falls} : i1")


def compute(state: State, plan: Plan, begin: str, end: str) -> None:
    """Writes the units in [begin, end), for ascending indices."""
    pure, size = state.writer.pure, scalar(state, plan.points.size)

    def unit(_: str, counters: dict[str, str]) -> None:
        state.uniform_depth = state.writer.depth
        length = state.constant(_POINTS, "i64")
        first = pure(f"arith.muli {counters[BLOCK_INDEX]}, {length} : i64")
        after = pure(f"arith.addi {first}, {length} : i64")
        last = pure(f"arith.minsi {after}, {size} : i64")
        start = _row_after(state, plan, first, last)
        some = state.writer.emit(f"arith.cmpi slt, {start}, {last} : i64")

        def rows() -> list[str]:
            _over_lanes(state, plan, start, _row_after(state, plan, last, size))
            return []

        state.writer.branch(some, [], rows)

    for_units(state, plan.counters, begin, end, unit)


def _row_after(state: State, plan: Plan, first: str, last: str) -> str:
    """The end of the row of the point before ``first``; at most ``last``."""
    writer, zero, one = state.writer, state.constant(0, "i64"), state.constant(1, "i64")
    inner = writer.emit(f"arith.cmpi sgt, {first}, {zero} : i64")

    def search() -> list[str]:
        emit = writer.emit
        state.uniform_depth = writer.depth
        row = _index(state, plan, emit(f"arith.subi {first}, {one} : i64")).name
        length = emit(f"arith.subi {last}, {first} : i64")
        zeros = emit(f'"llvm.intr.ctlz"({length}) <{{is_zero_poison = false}}> : (i64) -> i64')
        steps = emit(f"arith.subi {state.constant(64, 'i64')}, {zeros} : i64")

        def halve(_: str, bounds: list[str]) -> list[str]:
            low, high = bounds
            state.uniform_depth = writer.depth
            middle = emit(f"arith.shrui {emit(f'arith.addi {low}, {high} : i64')}, {one} : i64")
            some = emit(f"arith.cmpi slt, {low}, {high} : i64")

            def look() -> list[str]:
                state.uniform_depth = writer.depth
                same = emit(f"arith.cmpi eq, {_index(state, plan, middle).name}, {row} : i64")
                after = emit(f"arith.addi {middle}, {one} : i64")
                lower = emit(f"arith.select {same}, {after}, {low} : i64")
                return [lower, emit(f"arith.select {same}, {high}, {middle} : i64")]

            return writer.branch(some, ["i64", "i64"], look, lambda: [low, high])

        return writer.loop((zero, steps, one), [(first, "i64"), (last, "i64")], halve)[:1]

    (found,) = writer.branch(inner, ["i64"], search, lambda: [first])
    return found


def _over_lanes(state: State, plan: Plan, begin: str, end: str) -> None:
    """The rows of the points in [begin, end), some vectors of their elements at a time."""
    if plan.lane is None:
        _Rows(state, plan, lambda body: [body(0)], 1).run(begin, end)
        return
    lane, size = plan.lane, scalar(state, plan.lane.size)

    def loop(first: str, last: str, copies: int, full: bool) -> None:
        def step(position: str, _: list[str]) -> list[str]:
            def vectors(body: Callable[[int], str]) -> list[str]:
                return side_by_side(state, lane, position, last, body, copies=copies, full=full)

            _Rows(state, plan, vectors, copies).run(begin, end)
            return []

        state.writer.loop((first, last, state.constant(copies * state.width, "i64")), [], step)

    whole = peel(state, state.constant(0, "i64"), size, _VECTORS * state.width)
    loop(state.constant(0, "i64"), whole, _VECTORS, True)
    loop(whole, size, 1, False)


class _Rows:
    """Writes the loop over points of ascending rows, which carries the current row and the values of its elements.
    ``vectors(f)`` calls f(k) with the lanes set to its k-th vector."""

    def __init__(
        self, state: State, plan: Plan, vectors: Callable[[Callable[[int], str]], list[str]], copies: int
    ) -> None:
        self.state, self.plan, self.vectors, self.copies = state, plan, vectors, copies
        assert plan.kernel.scatter is not None
        self.write: Instr = plan.kernel.scatter
        self.dtype = plan.kernel.args[self.write.arg].dtype

    def run(self, begin: str, end: str) -> None:
        """Writes the loop; there must be at least one point."""
        state, writer, one = self.state, self.state.writer, self.state.constant(1, "i64")
        kind = types.register(self.dtype)
        kinds = [kind if self.plan.lane is None else state.vector(kind)] * self.copies
        state.uniform_depth = writer.depth
        row = _index(state, self.plan, begin).name

        def step(position: str, carried: list[str]) -> list[str]:
            before, *values = carried
            state.uniform_depth = writer.depth
            here = _index(state, self.plan, position).name
            new = writer.emit(f"arith.cmpi ne, {here}, {before} : i64")
            values = writer.branch(new, kinds, lambda: self._next(before, here, values), lambda: values)
            return [here, *self.vectors(lambda k: self._combined(values[k]))]

        start = [(row, "i64"), *zip(self.vectors(lambda k: self._old(row)), kinds)]
        last, *values = writer.loop((begin, end, one), start, step)
        self.vectors(lambda k: self._put(last, values[k]))

    def _next(self, before: str, row: str, values: list[str]) -> list[str]:
        self.vectors(lambda k: self._put(before, values[k]))
        return self.vectors(lambda k: self._old(row))

    def _combined(self, before: str) -> str:
        """The row's values, combined with those of the current point."""
        state = self.state
        values: Values = {}
        for instr in self.plan.own:
            instruction(state, instr, values)
        uniform = state.lane is None
        value = values[self.write.operands[0]]
        value = value if uniform else Value(state.lanes(value), value.dtype, uniform=False)
        old = Value(before, self.dtype, uniform=uniform)
        return arithmetic.apply(state, operation(self.write.combiner, self.dtype), [old, value]).name

    def _address(self, row: str) -> str:
        """The address of the elements of a row. The index is known to be in range."""
        state, plan = self.state, self.plan
        values: Values = {plan.checked.results[0]: Value(row, "index")}
        wanted = self.write.operands[1:]
        for instr in plan.kernel.code:
            if instr in plan.after or instr.op == "index" and instr.results[0] in wanted:
                instruction(state, instr, values)
        return scatter.address(state, self.write, [values[number] for number in wanted])

    def _old(self, row: str) -> str:
        state, address = self.state, self._address(row)
        return scatter.load(state, self.write, address)

    def _put(self, row: str, value: str) -> str:
        scatter.store(self.state, self.write, self._address(row), value)
        return value
