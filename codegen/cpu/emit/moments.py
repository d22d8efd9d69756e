"""Sums of squared deviations in the same sweep as the sum that gives their centre, so that long rows are read once.

    s = sum(v); c = s / k; q = sum((v - c) ** 2)    ->    s, m = moments(v); q = m + n * (s / n - c) ** 2

where m is the sum of squares around the mean itself and n is the number of elements; all in float64. A row is processed
in blocks that fit into the first-level cache. Each lane adds its elements of a block, then the squares of their
deviations from its own mean of the block, so that nothing cancels; blocks and chunks are combined by the update of
Chan, Golub and LeVeque (The American Statistician 37(3), 1983).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symshape.analysis.instr_builder import drop_dead
from symshape.analysis.loops import Instr, LoopKernel
from symshape.analysis.online import Online, find_online
from symshape.codegen.cpu.emit.combiners import Reduction, combine, narrowed, wide, widened
from symshape.codegen.cpu.emit.state import Value
from symshape.codegen.cpu.schedule.sweep_order import Sweep, closure
from symshape.codegen.cpu.vector_math.small_integers import float_of_small
from symshape.prover.numbers.expr import product

if TYPE_CHECKING:
    from symshape.codegen.cpu.emit.sweep import Accumulators, SweepLoops, Values

_MEAN, _APART, _SQUARE, _TOTAL = -1, -2, -3, -4  # of a block: unlike any value of a kernel


def with_moments(kernel: LoopKernel) -> LoopKernel:
    """The kernel with such sums of squares computed in the sweep of their sum. Rows must not be empty.

    Not in sweeps with products, which lose accuracy where they restart with each block (see `SweepLoops`).
    """
    made = {number: instr for instr in kernel.code for number in instr.results}
    online = [one for one in find_online(kernel.code).values() if one.kind == "square" and _is_quotient(made, one)]
    if not online or any(instr.combiner == "mul" for instr in kernel.code):
        return kernel
    writer = _Writer(kernel, online)
    for instr in kernel.code:
        writer.write(instr)
    return replace(kernel, code=drop_dead(writer.code))


def _is_quotient(made: dict[int, Instr], one: Online) -> bool:
    centre = made[one.centre]
    return centre.op == "arith.divf" and centre.operands[0] == one.first


class _Writer:
    """Rewrites the code: both sums are computed where the first one was. ``moments``: their values, by the first
    one's."""

    def __init__(self, kernel: LoopKernel, online: list[Online]) -> None:
        self.firsts, self.totals = {one.first for one in online}, {one.result: one for one in online}
        self.elements = product(dim.size for dim in kernel.dims if dim.reduced)
        self.code: list[Instr] = []
        self.fresh = itertools.count(1 + max(number for instr in kernel.code for number in instr.results))
        self.moments: dict[int, tuple[int, int]] = {}

    def write(self, instr: Instr) -> None:
        number = instr.results[0] if instr.results else -1
        if number in self.firsts:
            value = self._make("arith.extf", instr.operands[0], row=False, source_dtype=instr.dtype)
            both = self.moments[number] = next(self.fresh), next(self.fresh)
            self.code.append(Instr("reduce", both, (value,), "f64", False, combiner="moments"))
            found = both[0]
        elif number in self.totals:
            one = self.totals[number]
            centre = self._make("arith.extf", one.centre, source_dtype=instr.dtype)
            found = self._around(centre, *self.moments[one.first])
        else:
            self.code.append(instr)
            return
        self.code.append(Instr("arith.truncf", (number,), (found,), instr.dtype, True, source_dtype="f64"))

    def _make(self, op: str, *operands: int, dtype: str = "f64", row: bool = True, **fields: Any) -> int:
        if op == "arith.extf" and fields["source_dtype"] == dtype:
            return operands[0]
        self.code.append(Instr(op, (next(self.fresh),), operands, dtype, row, **fields))
        return self.code[-1].results[0]

    def _around(self, centre: int, total: int, squares: int) -> int:
        """The squares around ``centre`` from those around the mean. If the sum overflows float32, the centre is
        infinite too, and so is every deviation from it."""
        size = self._make("index", dtype="index", address=self.elements)
        whole = self._make("arith.index_cast", size, dtype="i64", source_dtype="index")
        number = self._make("arith.sitofp", whole, source_dtype="i64")
        apart = self._make("arith.subf", self._make("arith.divf", total, number), centre)
        moved = self._make("arith.mulf", self._make("arith.mulf", apart, apart), number)
        lost = self._make("arith.cmpf", apart, apart, dtype="i1", predicate="uno", source_dtype="f64")
        infinite = self._make("arith.mulf", centre, centre)
        return self._make("arith.addf", squares, self._make("arith.select", lost, infinite, moved))


def in_blocks(loops: SweepLoops, chain: int, accumulators: Accumulators, values: Values) -> Accumulators:
    """Writes the sweep in blocks of ``chain`` vectors for each of the copies; other reductions run beside the
    moments."""
    state, layout = loops.state, loops.layout
    assert layout.lane is not None
    most = chain * layout.copies * state.width
    length = state.constant(most, "i64")
    lower, upper = loops.bounds(layout.lane)
    sums = [replace(one, combiner="add") if one.combiner == "moments" else one for one in loops.reductions]
    many = [wide(one) for one in loops.reductions]

    def block(first: str, current: Accumulators) -> Accumulators:
        pure = state.writer.pure
        last = pure(f"arith.minsi {pure(f'arith.addi {first}, {length} : i64')}, {upper} : i64")
        inner = _Block(loops, (first, last), most, values)
        found, result = inner.run(loops.current, sums), []
        for one, plain, names, before, whole in zip(loops.reductions, sums, found, current, many, strict=True):
            new = inner.moments(plain, names[0]) if one.combiner == "moments" else widened(state, one, names, False)
            result.append(combine(state, whole, before, new, False))
        return result

    start = [widened(state, one, names, False) for one, names in zip(loops.reductions, accumulators, strict=True)]
    found = loops.loop(many, (lower, upper, length), start, block)
    return [narrowed(state, one, names, False) for one, names in zip(loops.reductions, found, strict=True)]


class _Block:
    """The elements of the lane dim within ``bounds``, at most ``most`` of them."""

    def __init__(self, loops: SweepLoops, bounds: tuple[str, str], most: int, values: Values) -> None:
        self.loops, self.bounds, self.most, self.values = loops, bounds, most, values

    def run(self, current: Sweep, reductions: list[Reduction], more: Values | None = None) -> Accumulators:
        """Writes a sweep over these elements and returns its accumulators."""
        loops, lane = self.loops, self.loops.layout.lane
        assert lane is not None
        part = type(loops)(
            loops.state,
            replace(loops.layout, most=self.most),
            current,
            reductions,
            loops.vectors,
            {**loops.ranges, lane.name: self.bounds},
            loops.given,
            loops.buffers,
        )
        return part.run([{**self.values, **(more or {})}])[0]

    def moments(self, plain: Reduction, total: str) -> list[str]:
        """The accumulators of the moments, from the sum of each lane."""
        state, current, (operand,) = self.loops.state, self.loops.current, plain.instr.operands
        count, kind = self._count(), state.vector("f64")
        some = state.writer.pure(f"arith.maximumf {count}, {state.splat(1.0, 'f64')} : {kind}")
        mean = state.writer.pure(f"arith.divf {total}, {some} : {kind}")
        apart = Instr("arith.subf", (_APART,), (operand, _MEAN), "f64", False)
        square = Instr("arith.mulf", (_SQUARE,), (_APART, _APART), "f64", False)
        squares = Instr("reduce", (_TOTAL,), (_SQUARE,), "f64", False, combiner="add")
        made = [instr for instr in current.code if operand in instr.results]
        before = [found for instr in closure(current.code, made).code for found in self._with_next(instr)]
        again = Sweep((*before, apart, square, squares), (squares,), loaded=current.loaded)
        found = self.run(again, [replace(plain, instr=squares)], {_MEAN: Value(mean, "f64", uniform=False)})
        return [count, total, *found[0]]

    def _with_next(self, instr: Instr) -> list[Instr]:
        """The instruction, with a prefetch of the next block after a load: the block itself is read from the cache."""
        lane = self.loops.layout.lane
        if instr.op != "load" or instr.address is None or lane is None or instr.address.coefficient(lane.name) != 1:
            return [instr]
        return [Instr("prefetch", (), (), instr.dtype, False, arg=instr.arg, address=instr.address + self.most), instr]

    def _count(self) -> str:
        """The number of elements of each lane, as f64."""
        state, pure, (first, last) = self.loops.state, self.loops.state.writer.pure, self.bounds
        width, vector = state.width, state.vector("i64")
        rest = state.along(pure(f"arith.subi {last}, {first} : i64"), state.constant(-1, "i64"), "i64")
        above = pure(f"arith.addi {rest}, {state.splat(width - 1, 'i64')} : {vector}")
        whole = pure(f"arith.shrui {above}, {state.splat(width.bit_length() - 1, 'i64')} : {vector}")
        return float_of_small(state, whole)
