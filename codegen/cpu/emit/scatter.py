"""Scatter kernels: each thread writes rows of its own of the destination, in the order of the points.

A point's index varies along the reduced dims of the space; points that differ in a parallel dim never write the same
element. So threads take different parallel indices, and points that may collide are processed in order: results are the
same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit import arithmetic, memory, types
from symshape.codegen.cpu.emit.body import for_units
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction, peel
from symshape.codegen.cpu.schedule.layout import BLOCK_INDEX, LanePlan
from symshape.codegen.scatter_kernels import operation
from symshape.prover.numbers.expr import Expr

COST: Final = 8  # of a point, in elementwise operations
_LINES = 512  # elements of the innermost parallel dim that a unit has, if they lie side by side
_APART = 16  # and if they do not


@dataclass(frozen=True)
class Plan(LanePlan):
    """The loop order. ``lane``: the innermost parallel dim, of which a unit has up to ``block`` elements. ``inner``: it
    is the innermost loop, since it is contiguous; in ``vectors`` if all its elements have the same index."""

    inner: bool
    vectors: bool


def plan(kernel: LoopKernel) -> Plan:
    """Chooses the loop order."""
    parallel = [dim for dim in kernel.dims if not dim.reduced]
    if not parallel:
        return Plan(kernel, None, 1, False, False)
    lane = parallel[-1]
    varying = varies(kernel, lane.name)
    write = kernel.scatter
    assert write is not None
    steps = [i.address.coefficient(lane.name) for i in kernel.code if i.op == "load" and i.address is not None]
    inner = all(step is not None and step.as_int() in (0, 1) for step in steps)
    made = {number: i for i in kernel.code for number in i.results}
    along = [i for i, number in enumerate(write.operands[1:]) if number in varying]
    vectors = (
        inner
        and len(along) == 1
        and kernel.args[write.arg].strides[along[0]].as_int() == 1
        and (
            made[write.operands[1 + along[0]]].address == Expr.symbol(lane.name)
            and made[write.operands[1 + along[0]]].op == "index"
        )
    )
    return Plan(kernel, lane, _LINES if inner else _APART, inner, vectors)


def varies(kernel: LoopKernel, dim: str) -> frozenset[int]:
    """The values that vary along a dim."""
    found: set[int] = set()
    for instr in kernel.code:
        own = instr.address is not None and dim in instr.address.symbols
        if own or not found.isdisjoint(instr.operands):
            found.update(instr.results)
    return frozenset(found)


def compute(state: State, plan: Plan, begin: str, end: str) -> None:
    """Writes the units in [begin, end)."""
    reduced = [dim for dim in plan.kernel.dims if dim.reduced]
    writer, pure, one = state.writer, state.writer.pure, state.constant(1, "i64")

    def unit(_: str, counters: dict[str, str]) -> None:
        if plan.lane is None:
            _nest(state, reduced, lambda: _point(state, {}, plan.kernel.code))
            return
        first = pure(f"arith.muli {counters[BLOCK_INDEX]}, {state.constant(plan.block, 'i64')} : i64")
        after = pure(f"arith.addi {first}, {state.constant(plan.block, 'i64')} : i64")
        last = pure(f"arith.minsi {after}, {scalar(state, plan.lane.size)} : i64")
        if plan.inner:
            _nest(state, reduced, lambda: _lanes(state, plan, first, last))
            return

        def line(index: str, _: list[str]) -> list[str]:
            assert plan.lane is not None
            state.symbols[plan.lane.name] = index
            _nest(state, reduced, lambda: _point(state, {}, plan.kernel.code))
            return []

        writer.loop((first, last, one), [], line)

    for_units(state, plan.counters, begin, end, unit)


def _nest(state: State, dims: Sequence[Dim], inside: object) -> None:
    if not dims:
        state.uniform_depth = state.writer.depth
        inside()  # type: ignore[operator]
        return
    dim, *others = dims

    def step(index: str, _: list[str]) -> list[str]:
        state.symbols[dim.name] = index
        _nest(state, others, inside)
        return []

    state.writer.loop((state.constant(0, "i64"), scalar(state, dim.size), state.constant(1, "i64")), [], step)


def _lanes(state: State, plan: Plan, first: str, last: str) -> None:
    """The points of a unit with the same reduced indices: whole vectors, then one by one."""
    assert plan.lane is not None
    name, varying = plan.lane.name, varies(plan.kernel, plan.lane.name)
    shared = [i for i in plan.kernel.code if i.op != "scatter" and varying.isdisjoint(i.results)]
    own = [i for i in plan.kernel.code if i not in shared]
    values: Values = {}
    for instr in shared:
        instruction(state, instr, values)

    def loop(begin: str, end: str, lane: str | None, width: int) -> None:
        def step(index: str, _: list[str]) -> list[str]:
            state.symbols[name], state.lane = index, lane
            state.uniform_depth = state.writer.depth
            _point(state, dict(values), own)
            state.lane = None
            return []

        state.writer.loop((begin, end, state.constant(width, "i64")), [], step)

    if plan.vectors:
        whole = peel(state, first, last, state.width)
        loop(first, whole, name, state.width)
        first = whole
    loop(first, last, None, 1)


def _point(state: State, values: Values, code: Sequence[Instr]) -> None:
    for instr in code:
        if instr.op == "scatter":
            _write(state, instr, values)
        else:
            instruction(state, instr, values)


def _write(state: State, instr: Instr, values: Values) -> None:
    """Reads, combines and writes one element, or a vector of contiguous ones. No effect if the destination is empty."""
    dtype, writer = state.kernel.args[instr.arg].dtype, state.writer
    value, *indices = (values[operand] for operand in instr.operands)
    at = address(state, instr, indices)
    if state.lane is not None:
        value = Value(state.lanes(value), value.dtype, uniform=False)

    def write() -> list[str]:
        new = value
        if instr.combiner != "set":
            old = Value(load(state, instr, at), dtype, uniform=state.lane is None)
            new = arithmetic.apply(state, operation(instr.combiner, dtype), [old, value])
        store(state, instr, at, new.name)
        return []

    condition = memory.nonempty(state, instr.arg)
    if condition:
        writer.branch(condition, [], write)
    else:
        write()


def address(state: State, instr: Instr, indices: Sequence[Value]) -> str:
    """The address that a point (lane 0 of a vector) writes to."""
    arg, pure = state.kernel.args[instr.arg], state.writer.pure
    offset = state.constant(0, "i64")
    for index, stride in zip(indices, arg.strides, strict=True):  # of lane 0, where the index is the lane dim
        offset = pure(f"arith.addi {offset}, {pure(f'arith.muli {index.name}, {scalar(state, stride)} : i64')} : i64")
    return state.element(state.pointers[instr.arg], offset, arg.dtype)


def load(state: State, instr: Instr, address: str) -> str:
    """Loads the destination's element, or the active lanes' elements."""
    dtype = state.kernel.args[instr.arg].dtype
    kind, align = types.memory(dtype), types.size(dtype)
    vector = state.vector(kind) if state.lane is not None else kind
    text = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}"
    if state.mask is not None:
        text = (
            f"llvm.intr.masked.load {address}, {state.mask}, {state.splat(0, kind)} {{alignment = {align} : i32}}"
            f" : (!llvm.ptr, {state.vector('i1')}, {vector}) -> {vector}"
        )
    return state.in_register(state.writer.emit(text), dtype, uniform=state.lane is None)


def store(state: State, instr: Instr, address: str, name: str) -> None:
    """Stores an element of the destination, or the active lanes' elements."""
    dtype = state.kernel.args[instr.arg].dtype
    kind, align = types.memory(dtype), types.size(dtype)
    name = state.in_memory(name, dtype, uniform=state.lane is None)
    if state.lane is not None:
        memory.store_vector(state, name, address, state.vector(kind), align)
        return
    state.writer.effect(f"llvm.store {name}, {address} {{alignment = {align} : i64}} : {kind}, !llvm.ptr")
