"""Ends loops over ragged rows where the row ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from symshape.analysis.loops import Dim, Instr
from symshape.analysis.ragged_rows import RaggedRow, ragged_row
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.schedule.layout import Layout

_FAR: Final = 1 << 61  # the sum of such a number and an index does not overflow


def row_of(state: State, layout: Layout, code: Sequence[Instr]) -> tuple[Dim, RaggedRow] | None:
    """The dim along which the rows of a sweep are ragged, with the row; None if there is none."""
    if layout.tile is not None:
        return None
    lane = {layout.lane.name} if layout.lane is not None else set()
    reduced = [dim for dim in state.kernel.dims if dim.reduced]
    along = frozenset(lane | {dim.name for dim in reduced})
    rows = [instr for instr in state.kernel.code if instr.row or instr.op == "reduce"]
    found = ((dim, ragged_row(code, rows, dim.name, along)) for dim in reduced)
    return next(((dim, row) for dim, row in found if row is not None), None)


def end_of(
    state: State,
    dim: Dim,
    row: RaggedRow,
    values: dict[int, Value],
    evaluate: Callable[[State, Instr, dict[int, Value]], None],
) -> str:
    """The end of the current row's points that have an effect. ``values``: row-level values, to which those computed
    here are added."""
    pure, size = state.writer.pure, scalar(state, dim.size)
    for instr in row.code:
        evaluate(state, instr, values)
    stop, none = _word(values[row.stop]), state.constant(0, "i64")
    if row.start is None:
        length, known = stop, None
    else:
        start, far, near = _word(values[row.start]), state.constant(_FAR, "i64"), state.constant(-_FAR, "i64")
        clamped = pure(f"arith.maxsi {pure(f'arith.minsi {stop}, {far} : i64')}, {near} : i64")
        length = pure(f"arith.subi {clamped}, {start} : i64")
        above = pure(f"arith.cmpi sgt, {start}, {near} : i64")
        known = pure(f"arith.andi {above}, {pure(f'arith.cmpi slt, {start}, {far} : i64')} : i1")
    end = pure(f"arith.minsi {pure(f'arith.maxsi {length}, {none} : i64')}, {size} : i64")
    if row.padded:
        after = pure(f"arith.addi {end}, {state.constant(1, 'i64')} : i64")
        end = pure(f"arith.minsi {after}, {size} : i64")
    return end if known is None else pure(f"arith.select {known}, {end}, {size} : i64")


def _word(value: Value) -> str:
    assert value.uniform and value.dtype in ("i64", "index")
    return value.name
