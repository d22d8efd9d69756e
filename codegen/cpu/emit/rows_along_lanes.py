"""Rows that lie along the lanes, processed in groups of as many rows as a vector has lanes.

One row's accumulators take log2(lanes) dependent shuffles and combinations to become one number. Those of a vector of
rows are transposed and combined together: each step combines the halves of two vectors, until lane k of a single one
belongs to row k, one combination of two shuffles less than there are rows, and row-level code then runs for all of them
at once. Between the sweeps, the values of each row are kept in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.combiners import (
    Reduction,
    any_nan,
    combine,
    identities,
    nan_where,
    narrowed,
    wide,
    widened,
)
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Accumulators
from symshape.codegen.cpu.schedule.sweep_order import Sweep

Buffers = list[list[str]]  # per reduction and part of its accumulators: where those of the rows wait


def fits(reduction: Reduction) -> bool:
    """Whether the accumulators are numbers."""
    return reduction.element != "i1"


def new_buffers(state: State, reductions: list[Reduction]) -> Buffers:
    """Stack buffers for the accumulators of a vector of rows."""
    return [
        [*(state.stack_buffer(state.width**2, element) for element in _numbers(one)), *_new_flags(state, one)]
        for one in reductions
    ]


def _numbers(reduction: Reduction) -> tuple[str, ...]:
    """The accumulators of which each lane waits. Of NaN one flag does, whether there is any in the row."""
    return reduction.elements[:1] if reduction.flagged else reduction.elements


def _new_flags(state: State, reduction: Reduction) -> list[str]:
    return [state.stack_buffer(state.width, "i1")] if reduction.flagged else []


def save(state: State, reductions: list[Reduction], accumulators: Accumulators, buffers: Buffers, index: str) -> None:
    """Stores the accumulators of row ``index`` of the vector of rows; of a flag, whether it is set in any lane."""
    pure = state.writer.pure
    for one, names, targets in zip(reductions, accumulators, buffers, strict=True):
        offset = pure(f"arith.muli {index}, {state.constant(state.width, 'i64')} : i64")
        for name, target, element in zip(names, targets, _numbers(one)):
            _store(state, name, state.vector(element), state.element(target, offset, element))
        if one.flagged:
            flag = state.in_memory(any_nan(state, one, names[1]), "i1", uniform=True)
            _store(state, flag, "i8", state.element(targets[1], index, "i1"))


def _store(state: State, value: str, type_: str, address: str) -> None:
    state.writer.effect(f"llvm.store {value}, {address} {{alignment = 1 : i64}} : {type_}, !llvm.ptr")


def spill(state: State, current: Sweep, values: Mapping[int, Value]) -> dict[int, str]:
    """Stack buffers with the row-level values that the sweep uses, lane k for row k."""
    taken = {operand for instr in current.code for operand in instr.operands}
    waiting = {}
    for number in sorted(taken & values.keys()):
        value = values[number]
        if value.uniform:
            continue
        vector = state.vector(types.memory(value.dtype))
        name = state.in_memory(state.lanes(value), value.dtype, uniform=False)
        waiting[number] = state.stack_buffer(state.width, value.dtype)
        state.writer.effect(f"llvm.store {name}, {waiting[number]} {{alignment = 64 : i64}} : {vector}, !llvm.ptr")
    return waiting


def reload(state: State, waiting: Mapping[int, str], values: Mapping[int, Value], index: str) -> dict[int, Value]:
    """The spilled values of row ``index`` of the vector of rows."""
    found = {number: value for number, value in values.items() if value.uniform}
    for number, buffer in waiting.items():
        dtype = values[number].dtype
        kind = types.memory(dtype)
        name = state.writer.emit(f"llvm.load {state.element(buffer, index, kind)} : !llvm.ptr -> {kind}")
        found[number] = Value(state.in_register(name, dtype, uniform=True), dtype)
    return found


def totals(state: State, reductions: list[Reduction], buffers: Buffers) -> Accumulators:
    """The accumulators of the rows, one row per lane."""
    return [_total(state, one, found) for one, found in zip(reductions, buffers, strict=True)]


def _total(state: State, reduction: Reduction, buffers: list[str]) -> list[str]:
    """Vector i holds blocks of ``size`` lanes of the rows i, i + size, i + 2*size ...; each step halves ``size``. As in
    `across_lanes`, the last four numbers of each row's sum are added in the wide type."""
    numbers = _numbers(reduction)
    size, current = state.width, reduction
    vectors = [[_row(state, buffer, k, element) for buffer, element in zip(buffers, numbers)] for k in range(size)]
    flags = [nan_where(state, reduction, _flags(state, buffer), False) for buffer in buffers[len(numbers) :]]
    none = identities(state, reduction, False)[len(numbers) :]
    while size > 1:
        half = size // 2
        lower = [b % 2 * state.width + b // 2 * size + lane for b in range(state.width // half) for lane in range(half)]
        upper = [lane + half for lane in lower]
        pairs = list(zip(vectors[:half], vectors[half:], strict=True))
        lows, highs = ([_picked(state, *pair, order, current) + none for pair in pairs] for order in (lower, upper))
        if size == 4:
            current = wide(reduction)
            lows, highs = ([widened(state, reduction, one, False) for one in side] for side in (lows, highs))
        found = [combine(state, current, low, high, uniform=False) for low, high in zip(lows, highs, strict=True)]
        vectors, size = [one[: len(numbers)] for one in found], half
    return [*narrowed(state, reduction, vectors[0], False), *flags]


def _picked(state: State, left: list[str], right: list[str], order: list[int], reduction: Reduction) -> list[str]:
    lanes = ", ".join(map(str, order))
    return [
        state.writer.pure(f"vector.shuffle {a}, {b} [{lanes}] : {state.vector(e)}, {state.vector(e)}")
        for a, b, e in zip(left, right, reduction.elements)
    ]


def _row(state: State, buffer: str, number: int, element: str) -> str:
    address = state.element(buffer, state.constant(number * state.width, "i64"), element)
    return state.writer.emit(f"llvm.load {address} {{alignment = 1 : i64}} : !llvm.ptr -> {state.vector(element)}")


def _flags(state: State, buffer: str) -> str:
    name = state.writer.emit(f"llvm.load {buffer} {{alignment = 1 : i64}} : !llvm.ptr -> {state.vector('i8')}")
    return state.in_register(name, "i1", uniform=False)
