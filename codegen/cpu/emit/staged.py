"""Staged kernels, for few long rows: each sweep is a launch of its own, in which threads share the chunks of a row.

    @k_rows0(context, unit)           row-level code before the first sweep
    @k_sweep0(context, begin, end)    chunks of sweep 0, whose accumulators are stored in the workspace
    @k_rows1(context, unit)           combines chunks in order; row-level code before the second sweep
    @k_sweep1 ...

All of them run for one row, then for the next, so that a sweep may find in the cache what the sweep before it has read.
For rows that do not fit there, every other sweep runs over the chunks in reverse order. Row-level values that later
functions need are stored in the workspace too, behind the accumulators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from symshape.codegen.cpu.emit import launch, split, types
from symshape.codegen.cpu.emit.body import Body, for_units
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction
from symshape.codegen.cpu.schedule.layout import BLOCK_INDEX, MAX_SPLITS, SPLIT_INDEX, SPLITS, Layout
from symshape.codegen.cpu.schedule.sweep_order import Schedule
from symshape.prover.numbers.expr import maximum

_ANYWHERE = ("constant", "index")  # values that each function makes for itself
Kinds = dict[int, tuple[str, bool]]  # of the values that wait: dtype, whether all lanes have the same


class Staged(Body):
    """Writes one of the functions. ``kinds``: the values that earlier functions have stored in the workspace."""

    def __init__(self, state: State, schedule: Schedule, layout: Layout, kinds: Kinds) -> None:
        super().__init__(state, schedule, layout)
        self.kinds = kinds
        self.waiting = waiting(schedule)

    def chunks(self, number: int, begin: str, end: str) -> None:
        """Writes sweep ``number`` over the chunks in [begin, end)."""

        state, pure = self.state, self.state.writer.pure
        splits, last = state.symbols[SPLITS], state.constant(1, "i64")

        def one(unit: str, counters: dict[str, str]) -> None:
            self.unit, chunk = unit, counters[SPLIT_INDEX]
            if number % 2:
                chunk = pure(f"arith.subi {pure(f'arith.subi {splits}, {last} : i64')}, {chunk} : i64")
            self._enter_split(chunk)
            whole = pure(f"arith.divui {unit}, {splits} : i64")
            self._over_lanes(counters.get(BLOCK_INDEX), partial(self._chunk, number, whole))

        first = pure(f"llvm.load {pure(launch.word(launch.FIRST_WORD))} {{alignment = 8 : i64}} : !llvm.ptr -> i64")
        begin, end = (pure(f"arith.addi {first}, {bound} : i64") for bound in (begin, end))
        for_units(state, self.layout.counters, begin, end, one)

    def rows(self, number: int, unit: str) -> None:
        """Writes the row-level code before sweep ``number``; after the last sweep, the epilogue."""

        def one(unit: str, counters: dict[str, str]) -> None:
            self.unit = unit
            self._over_lanes(counters.get(BLOCK_INDEX), partial(self._row_stage, number))

        counters = [counter for counter in self.layout.counters if counter[0] != SPLIT_INDEX]
        after = self.state.writer.pure(f"arith.addi {unit}, {self.state.constant(1, 'i64')} : i64")
        for_units(self.state, counters, unit, after, one)

    def _chunk(self, number: int, unit: str) -> None:
        accumulators = self._sweep(number, self._reloaded(number + 1, unit))
        if self.reductions[number]:
            uniform = self.layout.lane is None
            split.save(self.state, self.reductions[number], accumulators, self.unit, uniform)

    def _row_stage(self, number: int) -> None:
        values = self._reloaded(number, self.unit)
        before = [set(one) for one in values]
        if number and self.reductions[number - 1]:
            reductions, sets = self.reductions[number - 1], 1 if self.layout.across else self.layout.copies
            found = split.load(self.state, reductions, sets, self.unit, self.layout.lane is None)
            self._finish(reductions, found, values)
        self._rows(number, values)
        for k, current in enumerate(values):
            for value in sorted((current.keys() - before[k]) & self.waiting.keys()):
                self._wait(k, value, current[value])

    def _reloaded(self, number: int, unit: str) -> list[Values]:
        """The row-level values of earlier functions, per copy."""
        values: list[Values] = [{} for _ in range(self.copies)]

        def made(k: int) -> None:
            for stage in self.schedule.rows[:number]:
                for instr in stage:
                    if instr.op in _ANYWHERE:
                        instruction(self.state, instr, values[k])

        self._vectors(made)
        for k, current in enumerate(values):
            for value, (dtype, uniform) in self.kinds.items():
                kind, state = types.memory(dtype), self.state
                type_ = kind if uniform else state.vector(kind)
                address = self._address(k, value, unit)
                name = state.writer.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> {type_}")
                current[value] = Value(state.in_register(name, dtype, uniform=uniform), dtype, uniform)
        return values

    def _wait(self, k: int, number: int, value: Value) -> None:
        """Stores a row-level value of copy ``k`` in the workspace."""
        state, kind = self.state, types.memory(value.dtype)
        name = value.name if value.uniform else state.lanes(value)
        name = state.in_memory(name, value.dtype, uniform=value.uniform)
        type_ = kind if value.uniform else state.vector(kind)
        address = self._address(k, number, self.unit)
        state.writer.effect(f"llvm.store {name}, {address} {{alignment = 8 : i64}} : {type_}, !llvm.ptr")
        self.kinds[number] = (value.dtype, value.uniform)

    def _address(self, k: int, number: int, unit: str) -> str:
        state, pure = self.state, self.state.writer.pure
        step, start = value_bytes(self.layout, self.waiting, state.width), chunk_bytes(self, state.width)
        offset = pure(f"arith.muli {unit}, {state.constant(step, 'i64')} : i64")
        slot = pure(f"llvm.getelementptr {state.workspace}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
        mine = start + (k * len(self.waiting) + self.waiting[number]) * state.width * split.LANE_BYTES
        return pure(f"llvm.getelementptr {slot}[{mine}] : (!llvm.ptr) -> !llvm.ptr, i8")


def waiting(schedule: Schedule) -> dict[int, int]:
    """The row-level values that later functions use, numbered."""
    made = {r for stage in schedule.rows for i in stage if i.op not in _ANYWHERE for r in i.results}
    made |= {r for one in schedule.sweeps for i in one.reduces for r in i.results}
    taken = {operand for one in schedule.sweeps for i in one.code for operand in i.operands}
    taken |= {operand for stage in schedule.rows for i in stage for operand in i.operands}
    return {number: k for k, number in enumerate(sorted(made & taken))}


def value_bytes(layout: Layout, names: dict[int, int], width: int) -> int:
    """Bytes of the workspace for the row-level values of a unit."""
    return layout.copies * len(names) * width * split.LANE_BYTES


def chunk_bytes(body: Body, width: int) -> int:
    """Bytes of the workspace for the accumulators of all chunks, of the sweep with the largest ones."""
    sets = 1 if body.layout.across else body.layout.copies
    return MAX_SPLITS * max(split.slot_bytes(one, sets, width) for one in body.reductions)


def workspace_bytes(state: State, schedule: Schedule, layout: Layout) -> int:
    """Bytes of the workspace."""
    units = MAX_SPLITS // 2  # a unit has two chunks at least
    return chunk_bytes(Body(state, schedule, layout), state.width) + units * value_bytes(
        layout, waiting(schedule), state.width
    )


def stages(schedule: Schedule) -> list[tuple[str, int]]:
    """The functions in order: ("rows" or "sweep", number). Row functions without work are left out."""
    found: list[tuple[str, int]] = []
    for number, rows in enumerate(schedule.rows):
        reduced = number > 0 and schedule.sweeps[number - 1].reduces
        if reduced or any(instr.op not in _ANYWHERE for instr in rows):
            found.append(("rows", number))
        if number < len(schedule.sweeps):
            found.append(("sweep", number))
    return found


def functions(name: str, schedule: Schedule, layout: Layout, enter: Callable[[tuple[str, ...]], State]) -> list[str]:
    """The text of all functions; ``enter`` prints the head of one, with the given parameters after the context."""
    lines, kinds = [], Kinds()
    for kind, number in stages(schedule):
        names = ("%unit",) if kind == "rows" else ("%begin", "%end")
        state = enter(names)
        staged = Staged(state, schedule, layout, kinds)
        if kind == "rows":
            staged.rows(number, *names)
        else:
            staged.chunks(number, *names)
        parameters = ", ".join(["%context: !llvm.ptr", *(f"{one}: i64" for one in names)])
        lines += launch.function(f"{name}_{kind}{number}", parameters, state.writer)
    return lines


def start(
    state: State,
    name: str,
    schedule: Schedule,
    layout: Layout,
    context: str,
    work: Callable[[int], str],
) -> None:
    """Calls the functions for each unit, in order. ``work``: the cost of a sweep over all units, see `launch.start`."""
    writer, splits = state.writer, state.symbols[SPLITS]
    count = scalar(state, maximum(layout.rows_apart, 1))
    works = [writer.pure(f"arith.divui {work(number)}, {count} : i64") for number in range(len(schedule.sweeps))]

    def one(unit: str, _: list[str]) -> list[str]:
        launch.first_unit(writer, context, writer.pure(f"arith.muli {unit}, {splits} : i64"))
        for kind, number in stages(schedule):
            if kind == "rows":
                launch.call(writer, f"{name}_rows{number}", context, unit)
            else:
                launch.start(writer, f"{name}_sweep{number}", context, splits, works[number])
        return []

    writer.loop((state.constant(0, "i64"), count, state.constant(1, "i64")), [], one)
