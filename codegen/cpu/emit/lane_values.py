"""Values that depend on the lanes alone, in buffers on the stack: computed once, and read by several rows."""

from __future__ import annotations

from symshape.analysis.loops import Instr
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction, side_by_side
from symshape.codegen.cpu.schedule.layout import Layout

Buffers = dict[Instr, str]


def compute(state: State, layout: Layout, begin: str, end: str) -> Buffers:
    """Buffers with the values at the lanes in [begin, end), which are at most the layout's block."""
    assert layout.work is not None and layout.lane is not None
    work, lane = layout.work, layout.lane
    buffers = {instr: state.stack_buffer(layout.block, instr.dtype) for instr in work.kept}

    def vector(position: str, _: list[str]) -> list[str]:
        def one(_: int) -> None:
            values: Values = {}
            for instr in work.code:
                instruction(state, instr, values)
            for instr, buffer in buffers.items():
                _store(state, values[instr.results[0]], _at(state, buffer, begin, position, instr.dtype))

        side_by_side(state, lane, position, end, one, copies=1, full=False)
        return []

    state.writer.loop((begin, end, state.constant(state.width, "i64")), [], vector)
    return buffers


def reload(state: State, buffers: Buffers, begin: str, position: str) -> Values:
    """The values of the vector of lanes that starts at ``position``."""
    return {
        instr.results[0]: _load(state, _at(state, buffer, begin, position, instr.dtype), instr.dtype)
        for instr, buffer in buffers.items()
    }


def _at(state: State, buffer: str, begin: str, position: str, dtype: str) -> str:
    return state.element(buffer, state.writer.pure(f"arith.subi {position}, {begin} : i64"), dtype)


def _store(state: State, value: Value, address: str) -> None:
    name = state.in_memory(state.lanes(value), value.dtype, uniform=False)
    vector, align = state.vector(types.memory(value.dtype)), types.size(value.dtype)
    state.writer.effect(f"llvm.store {name}, {address} {{alignment = {align} : i64}} : {vector}, !llvm.ptr")


def _load(state: State, address: str, dtype: str) -> Value:
    vector = state.vector(types.memory(dtype))
    text = f"llvm.load {address} {{alignment = {types.size(dtype)} : i64}} : !llvm.ptr -> {vector}"
    return Value(state.in_register(state.writer.emit(text), dtype, uniform=False), dtype, uniform=False)
