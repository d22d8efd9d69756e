"""The body of a kernel: a loop over units of work, which alternates row-level code and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from symshape.analysis.loops import Dim, Instr
from symshape.codegen.cpu.emit import lane_values, packed_rows, rows_along_lanes, split, transpose
from symshape.codegen.cpu.emit.combiners import Reduction, across_lanes, reduction, results
from symshape.codegen.cpu.emit.index_arithmetic import scalar, truncated, truncated_rest
from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.emit.sweep import Accumulators, Bounds, SweepLoops, Values, instruction, peel, side_by_side
from symshape.codegen.cpu.schedule.lane_work import LaneWork
from symshape.codegen.cpu.schedule.layout import BLOCK_INDEX, ROWS, SPLIT_INDEX, SPLITS, TILE_INDEX, Layout
from symshape.codegen.cpu.schedule.pieces import Cut, Piece
from symshape.codegen.cpu.schedule.sweep_order import Schedule
from symshape.prover.numbers.expr import Expr

Result = TypeVar("Result")


class Body:
    """Writes the loop over the units of one kernel. ``unit``: the current unit's number; ``pieces``: of the lane dim,
    if it is split into pieces."""

    def __init__(self, state: State, schedule: Schedule, layout: Layout, pieces: Cut | None = None) -> None:
        self.state, self.schedule, self.layout, self.pieces = state, schedule, layout, pieces
        self.reductions = [[reduction(instr) for instr in one.reduces] for one in schedule.sweeps]
        self.unit = self.position = self.end = ""
        self.copies, self.full = layout.copies, layout.full(state.width)
        self.ranges: dict[str, Bounds] = {}
        self.given: Values = {}
        self.buffers: dict[Instr, str] = {}  # of the accesses that are transposed, where the tile is a reduced dim

    def compute(self, begin: str, end: str) -> None:
        """Writes the units in [begin, end)."""

        def one(unit: str, counters: dict[str, str]) -> None:
            self.unit = unit
            self._enter_split(counters.get(SPLIT_INDEX, ""))
            self._over_lanes(counters.get(BLOCK_INDEX), self._stages)

        for_units(self.state, self.layout.counters, begin, end, one)

    def join(self, count: str) -> None:
        """Writes the second stage of split reductions: combines the chunks of each unit and computes the epilogue."""

        def one(unit: str, counters: dict[str, str]) -> None:
            self.unit = unit
            self._over_lanes(counters.get(BLOCK_INDEX), self._join_stages)

        counters = [counter for counter in self.layout.counters if counter[0] != SPLIT_INDEX]
        for_units(self.state, counters, self.state.constant(0, "i64"), count, one)

    def _enter_split(self, number: str) -> None:
        """Sets the range of the split dim to the chunk of this unit."""
        if self.layout.split is None:
            return
        state, pure = self.state, self.state.writer.pure
        length = scalar(state, self.layout.chunk)
        lower = pure(f"arith.muli {number}, {length} : i64")
        after = pure(f"arith.addi {lower}, {length} : i64")
        upper = pure(f"arith.minsi {after}, {scalar(state, self.layout.split.size)} : i64")
        self.ranges = {self.layout.split.name: (lower, upper)}

    def _over_lanes(self, block: str | None, inside: Callable[[], None]) -> None:
        """Calls inside() for each position of a parallel lane dim in the unit; once if there is none."""
        state, layout, pure = self.state, self.layout, self.state.writer.pure
        state.uniform_depth = state.writer.depth
        if layout.rows is not None:
            self._rows_along_lanes(layout.rows)
            return
        if layout.lane is None or layout.across:
            inside()
            return
        begin, end = state.constant(0, "i64"), scalar(state, layout.lane.size)
        if block is not None:
            length = state.constant(layout.block, "i64")
            begin = pure(f"arith.muli {block}, {length} : i64")
            end = pure(f"arith.minsi {pure(f'arith.addi {begin}, {length} : i64')}, {end} : i64")
        if self.pieces is not None:
            self._in_pieces(self.pieces, begin, end, inside, (Expr.const(0), layout.lane.size))
            return
        self.end = end
        if layout.work is not None:
            self._sharing(layout.work, begin, end)
            return
        if layout.tile is not None:
            inside = self._short if layout.short else self._tile
        if layout.block == layout.copies * state.width:
            self._block(begin, end, inside)
            return
        self._along(begin, end, inside)

    def _block(self, begin: str, end: str, inside: Callable[[], None]) -> None:
        """inside() for the vectors of one iteration, of which the last block has fewer."""
        state, pure = self.state, self.state.writer.pure
        self.position = begin
        if not self.layout.peeled:
            inside()
            return

        def vectors(full: bool) -> Sequence[str]:
            self.full, state.uniform_depth = full, state.writer.depth
            inside()
            return []

        length = pure(f"arith.subi {end}, {begin} : i64")
        whole = pure(f"arith.cmpi eq, {length}, {state.constant(self.layout.block, 'i64')} : i64")
        state.writer.branch(whole, [], partial(vectors, True), partial(vectors, False))

    def _in_pieces(
        self, piece: Piece | Cut, begin: str, end: str, inside: Callable[[], None], limits: tuple[Expr, Expr]
    ) -> None:
        """Loops over the pieces of the lane dim in [begin, end), which is the part of a unit of [``limits``)."""
        state, pure = self.state, self.state.writer.pure
        if isinstance(piece, Cut):
            (low, high), at = limits, scalar(state, piece.at)
            till, since = (high, low) if piece.whole else (piece.at, piece.at)
            if piece.whole:
                above = pure(f"arith.cmpi sge, {at}, {state.constant(0, 'i64')} : i64")
                at = pure(f"arith.select {above}, {begin}, {end} : i64")
            else:
                at = pure(f"arith.minsi {pure(f'arith.maxsi {at}, {begin} : i64')}, {end} : i64")
            self._in_pieces(piece.below, begin, at, inside, (low, till))
            self._in_pieces(piece.above, at, end, inside, (since, high))
            return
        usual = self.schedule, self.layout, state.groups, state.uniform_depth
        self.schedule, self.layout, state.groups = piece.plan, piece.division, piece.division.groups
        most = (limits[1] - limits[0]).as_int()
        is_vector = most is not None and most <= state.width and not self.layout.packed

        def loops() -> Sequence[str]:
            state.uniform_depth = state.writer.depth
            if is_vector:
                self.position, self.end, self.copies, self.full = begin, end, 1, False
                state.single = most == 1
                inside()
                state.single = False
            else:
                self._along(begin, end, inside)
            return []

        if piece.reads_outside or is_vector:
            state.writer.branch(pure(f"arith.cmpi slt, {begin}, {end} : i64"), [], loops, rare=False)
        else:
            self._along(begin, end, inside)
        self.schedule, self.layout, state.groups, state.uniform_depth = usual

    def _along(self, begin: str, end: str, inside: Callable[[], None]) -> None:
        """Calls inside() for the vectors of the lane dim in [begin, end)."""
        state, layout = self.state, self.layout
        self.end = end

        def vectors(position: str, _: list[str]) -> list[str]:
            self.position = position
            inside()
            return []

        def loop(first: str, last: str, copies: int, full: bool) -> None:
            self.copies, self.full = copies, full
            step = packed_rows.rows_per_vector(state, layout) if layout.packed else ""
            state.writer.loop((first, last, step or state.constant(copies * state.width, "i64")), [], vectors)

        if not layout.peeled:
            full = layout.full(state.width) and self.pieces is None
            loop(begin, end, layout.copies, full)
            return
        whole = peel(state, begin, end, layout.copies * state.width)
        loop(begin, whole, layout.copies, True)
        loop(whole, end, 1, False)

    def _tile(self) -> None:
        """Writes row-level code and sweeps for each index of the tile; transposed reads come from buffers."""
        state, layout, pure = self.state, self.layout, self.state.writer.pure
        tile, lane = layout.tile, layout.lane
        assert tile is not None and lane is not None
        width, zero, one = (state.constant(value, "i64") for value in (state.width, 0, 1))
        first = pure(f"arith.muli {state.symbols[TILE_INDEX]}, {width} : i64")
        left = pure(f"arith.subi {scalar(state, tile.size)}, {first} : i64")
        rows = pure(f"arith.minsi {left}, {width} : i64")
        columns = pure(f"arith.minsi {pure(f'arith.subi {self.end}, {self.position} : i64')}, {width} : i64")
        state.symbols[tile.name], state.symbols[lane.name] = first, self.position
        buffers = [transpose.new_buffer(state, instr) for instr in layout.transposed]
        for instr, buffer in zip(layout.transposed, buffers, strict=True):
            transpose.fill(state, instr, lane, buffer, rows, columns)

        def row(index: str, _: list[str]) -> list[str]:
            state.symbols[tile.name] = pure(f"arith.addi {first}, {index} : i64")
            state.uniform_depth = state.writer.depth
            pairs = zip(layout.transposed, buffers, strict=True)
            self.given = {instr.results[0]: transpose.row(state, instr, buffer, index) for instr, buffer in pairs}
            self._stages()
            return []

        state.writer.loop((zero, rows, one), [], row)

    def _sharing(self, work: LaneWork, begin: str, end: str) -> None:
        """Writes the rows of a unit, which share the work on the lanes in [begin, end)."""
        state, pure, name = self.state, self.state.writer.pure, work.rows.name
        zero, one, most = (state.constant(value, "i64") for value in (0, 1, ROWS))
        first = pure(f"arith.muli {state.symbols[TILE_INDEX]}, {most} : i64")
        count = pure(f"arith.minsi {pure(f'arith.subi {scalar(state, work.rows.size)}, {first} : i64')}, {most} : i64")

        def rows(inside: Callable[[], None]) -> None:
            def row(index: str, _: list[str]) -> list[str]:
                state.symbols[name] = pure(f"arith.addi {first}, {index} : i64")
                state.uniform_depth = state.writer.depth
                inside()
                return []

            state.writer.loop((zero, count, one), [], row)

        def down() -> None:
            state.rows = (name, state.writer.depth)
            rows(self._stages)
            state.rows = None

        if not work.kept:
            self._along(begin, end, down)
            return
        buffers = lane_values.compute(state, self.layout, begin, end)

        def with_values() -> None:
            self.given = lane_values.reload(state, buffers, begin, self.position)
            self._stages()

        rows(lambda: self._along(begin, end, with_values))

    def _short(self) -> None:
        """Writes row-level code and sweeps for a vector of rows, whose elements are read from, and stored to,
        transposed buffers."""
        state, layout, pure = self.state, self.layout, self.state.writer.pure
        tile, lane = layout.tile, layout.lane
        assert tile is not None and lane is not None
        width, rows = state.constant(state.width, "i64"), scalar(state, tile.size)
        columns = pure(f"arith.minsi {pure(f'arith.subi {self.end}, {self.position} : i64')}, {width} : i64")
        self.buffers = {instr: transpose.new_buffer(state, instr) for instr in (*layout.transposed, *layout.returned)}
        state.symbols[tile.name], state.symbols[lane.name] = state.constant(0, "i64"), self.position
        for instr in layout.transposed:
            transpose.fill(state, instr, lane, self.buffers[instr], rows, columns)
        self._stages()
        state.symbols[tile.name], state.symbols[lane.name] = state.constant(0, "i64"), self.position
        for instr in layout.returned:
            transpose.drain(state, instr, lane, self.buffers[instr], rows, columns)

    def _rows_along_lanes(self, dim: Dim) -> None:
        """Writes each sweep for a vector of rows, one row after the other; row-level code for all of them at once."""
        state, pure = self.state, self.state.writer.pure
        width, size = state.constant(state.width, "i64"), scalar(state, dim.size)
        first = pure(f"arith.muli {state.symbols[TILE_INDEX]}, {width} : i64")
        count = pure(f"arith.minsi {pure(f'arith.subi {size}, {first} : i64')}, {width} : i64")
        values: list[Values] = [{}]

        def stage(number: int, totals: Accumulators) -> None:
            def all_rows(_: int) -> None:
                if number:
                    self._results(self.reductions[number - 1], totals, values[0], uniform=False)
                self._rows(number, values)

            state.uniform_depth = state.writer.depth
            side_by_side(state, dim, first, size, all_rows, copies=1, full=False)

        stage(0, [])
        for k in range(len(self.schedule.sweeps)):
            stage(k + 1, self._rows_in_turn(k, dim, first, count, values[0]))

    def _rows_in_turn(self, k: int, dim: Dim, first: str, count: str, values: Values) -> Accumulators:
        """Sweep number ``k`` for ``count`` rows from ``first`` on; returns its accumulators, one lane per row."""
        state, reductions = self.state, self.reductions[k]
        waiting = rows_along_lanes.spill(state, self.schedule.sweeps[k], values)
        buffers = rows_along_lanes.new_buffers(state, reductions)

        def row(index: str, _: list[str]) -> list[str]:
            state.symbols[dim.name] = state.writer.pure(f"arith.addi {first}, {index} : i64")
            state.uniform_depth = state.writer.depth
            (found,) = self._sweep(k, [rows_along_lanes.reload(state, waiting, values, index)])
            rows_along_lanes.save(state, reductions, found, buffers, index)
            return []

        state.writer.loop((state.constant(0, "i64"), count, state.constant(1, "i64")), [], row)
        return rows_along_lanes.totals(state, reductions, buffers)

    def _vectors(self, body: Callable[[int], Result]) -> list[Result]:
        """Calls body(k) for each vector of the unit."""
        if self.layout.lane is None or self.layout.across:
            return [body(0)]
        if self.layout.packed:
            return [packed_rows.vector_of_rows(self.state, self.layout, self.position, self.end, body)]
        return side_by_side(
            self.state, self.layout.lane, self.position, self.end, body, copies=self.copies, full=self.full
        )

    def _stages(self) -> None:
        values: list[Values] = [{} for _ in range(self.copies)]
        self._rows(0, values)
        for k in range(len(self.schedule.sweeps)):
            accumulators = self._sweep(k, values)
            if self.layout.split is not None:
                self._finish_or_save(accumulators, values)
                return
            self._finish(self.reductions[k], accumulators, values)
            self._rows(k + 1, values)

    def _sweep(self, k: int, values: list[Values]) -> list[Accumulators]:
        """Writes sweep number ``k`` and returns its accumulators."""
        loops = SweepLoops(
            self.state,
            self.layout,
            self.schedule.sweeps[k],
            self.reductions[k],
            self._vectors,
            self.ranges,
            self.given,
            self.buffers,
        )
        return loops.run(values)

    def _finish_or_save(self, accumulators: list[Accumulators], values: list[Values]) -> None:
        """Writes the epilogue of a split sweep if there is one chunk, else saves the accumulators for `join`."""
        state, reductions = self.state, self.reductions[0]

        def finish() -> list[str]:
            self._finish(reductions, accumulators, values)
            self._rows(1, values)
            return []

        def save() -> list[str]:
            split.save(state, reductions, accumulators, self.unit, self.layout.lane is None)
            return []

        one = state.constant(1, "i64")
        whole = state.writer.pure(f"arith.cmpi eq, {state.symbols[SPLITS]}, {one} : i64")
        state.writer.branch(whole, [], finish, save)

    def _join_stages(self) -> None:
        values: list[Values] = [{} for _ in range(self.copies)]
        self._rows(0, values)
        sets = 1 if self.layout.across else self.layout.copies
        accumulators = split.load(self.state, self.reductions[0], sets, self.unit, self.layout.lane is None)
        self._finish(self.reductions[0], accumulators, values)
        self._rows(1, values)

    def _rows(self, stage: int, values: list[Values]) -> None:
        """Writes the row-level instructions before sweep number ``stage``."""

        def one(k: int) -> None:
            for instr in self.schedule.rows[stage]:
                instruction(self.state, instr, values[k])

        if self.schedule.rows[stage]:
            self._vectors(one)

    def _finish(self, reductions: list[Reduction], accumulators: list[Accumulators], values: list[Values]) -> None:
        """Makes the results of a sweep's reductions row-level values."""
        across = self.layout.across
        for current, names in zip(values, accumulators, strict=False):
            if across:
                names = [across_lanes(self.state, one, total) for one, total in zip(reductions, names, strict=True)]
            self._results(reductions, names, current, across or self.layout.lane is None)

    def _results(self, reductions: list[Reduction], totals: Accumulators, values: Values, uniform: bool) -> None:
        for one, total in zip(reductions, totals, strict=True):
            values.update(zip(one.instr.results, results(self.state, one, total, uniform), strict=True))


def for_units(
    state: State,
    counters: Sequence[tuple[str, object]],
    begin: str,
    end: str,
    body: Callable[[str, dict[str, str]], None],
) -> None:
    """Calls body(number, counters) for the units in [begin, end). The last two counters come from a division at the
    start and are then incremented with carry; counters before them are loops, so that code that depends on these alone
    is hoisted."""
    if len(counters) > 2:
        _in_rows(state, counters, begin, end, body)
        return
    writer, names = state.writer, [name for name, _ in counters]
    step = state.constant(1, "i64")

    def call(unit: str, current: Sequence[str]) -> None:
        found = dict(zip(names, current, strict=True))
        state.symbols.update(found)
        body(unit, found)

    if len(names) <= 1:

        def single(unit: str, _: list[str]) -> list[str]:
            call(unit, [unit] * len(names))
            return []

        writer.loop((begin, end, step), [], single)
        return
    sizes = [scalar(state, size) for _, size in counters]  # type: ignore[arg-type]
    start = _divided(state, begin, sizes)

    def several(unit: str, current: list[str]) -> list[str]:
        call(unit, current)
        return _advanced(state, current, sizes)

    writer.loop((begin, end, step), [(value, "i64") for value in start], several)


def _in_rows(
    state: State,
    counters: Sequence[tuple[str, object]],
    begin: str,
    end: str,
    body: Callable[[str, dict[str, str]], None],
) -> None:
    """Loops over all counters but the last two."""
    pure, zero, one = state.writer.pure, state.constant(0, "i64"), state.constant(1, "i64")
    outer, inner = counters[:-2], counters[-2:]
    left, right = (scalar(state, size) for _, size in inner)  # type: ignore[arg-type]
    size = pure(f"arith.maxsi {pure(f'arith.muli {left}, {right} : i64')}, {one} : i64")
    rounded = pure(f"arith.subi {pure(f'arith.addi {end}, {size} : i64')}, {one} : i64")

    def row(number: str, found: dict[str, str]) -> None:
        first = pure(f"arith.muli {number}, {size} : i64")
        lower = pure(f"arith.maxsi {pure(f'arith.subi {begin}, {first} : i64')}, {zero} : i64")
        upper = pure(f"arith.minsi {pure(f'arith.subi {end}, {first} : i64')}, {size} : i64")

        def unit(index: str, last: dict[str, str]) -> None:
            body(pure(f"arith.addi {first}, {index} : i64"), {**found, **last})

        for_units(state, inner, lower, upper, unit)

    for_units(state, outer, truncated(state, begin, size), truncated(state, rounded, size), row)


def _divided(state: State, number: str, sizes: list[str]) -> list[str]:
    """The counters of the unit with that number (>= 0)."""
    values, one = [], state.constant(1, "i64")
    for size in reversed(sizes[1:]):
        positive = state.writer.pure(f"arith.maxsi {size}, {one} : i64")
        values.append(truncated_rest(state, number, positive))
        number = truncated(state, number, positive)
    return [number, *reversed(values)]


def _advanced(state: State, current: list[str], sizes: list[str]) -> list[str]:
    """The counters of the next unit."""
    pure, zero = state.writer.pure, state.constant(0, "i64")
    carry, following = state.constant(1, "i64"), []
    for position in range(len(current) - 1, -1, -1):
        value = pure(f"arith.addi {current[position]}, {carry} : i64")
        if position:
            full = pure(f"arith.cmpi eq, {value}, {sizes[position]} : i64")
            value = pure(f"arith.select {full}, {zero}, {value} : i64")
            carry = pure(f"arith.extui {full} : i1 to i64")
        following.append(value)
    return following[::-1]
