"""One sweep of a kernel: loops over the reduced dims that carry accumulators, around the full-level instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from symshape.analysis.loops import Dim, Instr
from symshape.codegen.cpu.emit import arithmetic, memory, moments, ragged, transpose
from symshape.codegen.cpu.emit.combiners import (
    Reduction,
    accumulate,
    combine,
    combined,
    identities,
    is_sum,
    narrowed,
    wide,
    widened,
)
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.schedule.layout import LIGHT, Layout
from symshape.codegen.cpu.schedule.sweep_order import Sweep, weight
from symshape.prover.numbers.expr import Expr

_CHAIN = 64  # vectors of the lane dim that are added up before they join the row's sum (rounding errors)
_ROWS_CHAIN = 8  # the same for a scalar loop over a reduced dim
_BLOCKS = 64  # blocks that are added up before they join the row's sum

Result = TypeVar("Result")
Values = dict[int, Value]
Accumulators = list[list[str]]  # one entry per reduction
Bounds = tuple[str, str]


def instruction(state: State, instr: Instr, values: Values) -> None:
    """Prints an instruction other than a reduction."""
    operands = [values[operand] for operand in instr.operands]
    match instr.op:
        case "store":
            memory.store(state, instr, operands[0])
            return
        case "prefetch":
            memory.prefetch(state, instr)
            return
        case "combine":
            values.update(zip(instr.results, combined(state, instr, operands), strict=True))
            return
        case "load":
            value = memory.load(state, instr)
        case "extract":
            value = memory.extract(state, instr, operands)
        case "check_index":
            value = memory.check_index(state, instr, operands[0])
        case "holds":
            value = memory.holds(state, instr)
        case "index":
            value = arithmetic.index(state, instr)
        case "constant":
            value = arithmetic.constant(state, instr)
        case _:
            value = arithmetic.apply(state, instr, operands)
    values[instr.results[0]] = value


def side_by_side(
    state: State,
    lane: Dim,
    position: str,
    end: str,
    body: Callable[[int], Result],
    *,
    copies: int,
    full: bool,
) -> list[Result]:
    """Calls body(k) for the consecutive vectors of one iteration, in which the lane dim starts at ``position`` and,
    unless all are ``full``, lanes at or after ``end`` are inactive. Their operations are interleaved."""

    def one(k: int) -> Result:
        pure = state.writer.pure
        start = pure(f"arith.addi {position}, {state.constant(k * state.width, 'i64')} : i64") if k else position
        state.symbols[lane.name], state.lane = start, lane.name
        if full:
            result = body(k)
            state.lane = None
            return result
        rest = pure(f"arith.subi {end}, {start} : i64")
        left = pure(f"arith.minsi {rest}, {state.constant(state.width, 'i64')} : i64")
        narrow = pure(f"arith.trunci {left} : i64 to i32")
        bound = state.broadcast(narrow, "i32")
        wanted = state.constant(state.width, "i64")
        state.whole = pure(f"arith.cmpi eq, {left}, {wanted} : i64")
        state.mask = pure(f"arith.cmpi slt, {state.iota('i32')}, {bound} : {state.vector('i32')}")
        result = body(k)
        state.lane = state.mask = None
        return result

    return state.writer.interleave([partial(one, k) for k in range(copies)])


def peel(state: State, begin: str, end: str, step: int) -> str:
    """The end of the last whole step from ``begin``; the step is a power of two."""
    pure = state.writer.pure
    length = pure(f"arith.maxsi {pure(f'arith.subi {end}, {begin} : i64')}, {state.constant(0, 'i64')} : i64")
    whole = pure(f"arith.andi {length}, {state.constant(-step, 'i64')} : i64")
    return pure(f"arith.addi {begin}, {whole} : i64")


class SweepLoops:
    """Writes the loops of one sweep. ``vectors(f)`` calls f(k) for the vectors of the unit (k = 0 alone if the lanes
    run along a reduced dim, whose loop is written here); ``ranges`` replaces [0, size) for a split dim; ``given``:
    full-level values that are computed already; ``buffers``: buffers that accesses go to instead of memory."""

    def __init__(
        self,
        state: State,
        layout: Layout,
        current: Sweep,
        reductions: list[Reduction],
        vectors: Callable[[Callable[[int], Accumulators]], list[Accumulators]],
        ranges: dict[str, Bounds],
        given: Values,
        buffers: dict[Instr, str],
    ) -> None:
        self.state, self.layout, self.current, self.reductions = state, layout, current, reductions
        self.vectors, self.ranges, self.given, self.buffers = vectors, ranges, given, buffers
        self.uniform = layout.lane is None
        self.ragged = ragged.row_of(state, layout, current.code) if not (current.kept or current.loaded) else None
        self.ends: dict[str, str] = {}  # of ragged dims, in the current row

    def run(self, values: list[Values]) -> list[Accumulators]:
        """The accumulators of each vector of the unit after the sweep. ``values``: row-level values, per vector."""
        dims = [dim for dim in self.state.kernel.dims if dim.reduced and dim is not self.layout.lane]
        if self.ragged is not None:
            dim, row = self.ragged
            inner = dict(values[0])
            self.ends[dim.name] = ragged.end_of(self.state, dim, row, inner, instruction)
            self.given = {**self.given, **{number: inner[number] for i in row.code for number in i.results}}
        sets = 1 if self.layout.across else self.layout.copies
        start = [identities(self.state, one, self.uniform) for _ in range(sets) for one in self.reductions]
        repeated = self.reductions * sets

        def leaf(names: Accumulators) -> Accumulators:
            parts = self.vectors(lambda k: self._point(dict(values[k]), self._part(names, k)))
            return [one for part in parts for one in part]

        def lanes(names: Accumulators) -> Accumulators:
            if any(one.combiner == "moments" for one in self.reductions):
                return moments.in_blocks(self, _CHAIN, names, values[0])
            return self._vector_loop(names, values[0])

        final = self._nest(repeated, dims, start, lanes if self.layout.across else leaf)
        return [self._part(final, k) for k in range(sets)]

    def _part(self, names: Accumulators, k: int) -> Accumulators:
        count = len(self.reductions)
        return names[k * count : (k + 1) * count]

    def bounds(self, dim: Dim) -> Bounds:
        """The range of a reduced dim in this unit and row."""
        lower, upper = self.ranges.get(dim.name) or (self.state.constant(0, "i64"), scalar(self.state, dim.size))
        end = self.ends.get(dim.name)
        return (lower, upper) if end is None else (lower, self.state.writer.pure(f"arith.minsi {upper}, {end} : i64"))

    def _nest(
        self,
        reductions: list[Reduction],
        dims: list[Dim],
        accumulators: Accumulators,
        inner: Callable[[Accumulators], Accumulators],
    ) -> Accumulators:
        """Loops over reduced dims. Sums start at zero at each level and are added to the outer level's: chains stay
        short."""
        if not dims:
            return inner(accumulators)
        state, (dim, *others) = self.state, dims

        def step(index: str, current: Accumulators) -> Accumulators:
            state.symbols[dim.name] = index
            state.uniform_depth = state.writer.depth
            return self._nest(reductions, others, current, inner)

        lower, upper = self.bounds(dim)
        bounds = lower, upper, state.constant(1, "i64")
        return self._blocked(reductions, bounds, _ROWS_CHAIN, dim.size, accumulators, step)

    def _vector_loop(self, accumulators: Accumulators, values: Values) -> Accumulators:
        """The loop over a reduced lane dim; the copies accumulate separately and are combined at its end."""
        state, layout, lane = self.state, self.layout, self.layout.lane
        assert lane is not None
        lower, upper = self.bounds(lane)
        state.uniform_depth = state.writer.depth
        count, width = len(self.reductions), state.width
        length = lane.size if layout.most is None else Expr.const(layout.most)

        def loop(first: str, last: str, start: Accumulators, copies: int, full: bool, size: Expr) -> Accumulators:
            def step(position: str, names: Accumulators) -> Accumulators:
                def body(k: int) -> Accumulators:
                    return self._point(dict(values), self._part(names, k))

                parts = side_by_side(state, lane, position, last, body, copies=copies, full=full)
                return [one for part in parts for one in part]

            bounds = first, last, state.constant(copies * width, "i64")
            start = start + [identities(state, one, False) for one in self.reductions] * (copies - 1)
            block = _CHAIN * copies * width
            final = self._in_one_block(self.reductions * copies, bounds, block, size, start, step)
            return [self._tree(one, final[k::count]) for k, one in enumerate(self.reductions)]

        if not layout.peeled:
            return loop(lower, upper, accumulators, layout.copies, layout.full(width), length)
        whole = peel(state, lower, upper, layout.copies * width)
        found = loop(lower, whole, accumulators, layout.copies, True, length)
        return loop(whole, upper, found, 1, False, Expr.const(layout.copies * width))

    def _tree(self, reduction: Reduction, parts: Accumulators) -> list[str]:
        """The accumulators of the copies, combined in pairs."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [combine(self.state, reduction, left, right, False) for left, right in pairs]
        return parts[0]

    def _in_one_block(
        self,
        reductions: list[Reduction],
        bounds: tuple[str, str, str],
        block: int,
        size: Expr,
        accumulators: Accumulators,
        step: Callable[[str, Accumulators], Accumulators],
    ) -> Accumulators:
        """As `_blocked`. Where rows are inside of other loops, a row of a single block is added without the wide type,
        which would not change the result and would take as long as the row."""
        state = self.state
        outer = sum(dim.reduced for dim in state.kernel.dims) > 1
        light = sum(weight(instr) for instr in self.current.code) <= LIGHT
        if not outer or not light or size.as_int() is not None or not any(is_sum(one) for one in reductions):
            return self._blocked(reductions, bounds, block, size, accumulators, step)
        lower, upper, _ = bounds
        pure = state.writer.pure
        length = pure(f"arith.subi {upper}, {lower} : i64")
        single = pure(f"arith.cmpi sle, {length}, {state.constant(block, 'i64')} : i64")
        counts = [len(one) for one in accumulators]
        types = [e if self.uniform else state.vector(e) for one in reductions for e in one.elements]

        def at_once() -> list[str]:
            pairs = list(zip(reductions, accumulators, strict=True))
            fresh = [identities(state, one, self.uniform) if is_sum(one) else names for one, names in pairs]
            found = self.loop(reductions, bounds, fresh, step)
            joined = [self._join(one, names, new) if is_sum(one) else new for (one, names), new in zip(pairs, found)]
            return [name for one in joined for name in one]

        def in_blocks() -> list[str]:
            found = self._blocked(reductions, bounds, block, size, accumulators, step)
            return [name for one in found for name in one]

        return _grouped(state.writer.branch(single, types, at_once, in_blocks), counts)

    def _blocked(
        self,
        reductions: list[Reduction],
        bounds: tuple[str, str, str],
        block: int,
        size: Expr,
        accumulators: Accumulators,
        step: Callable[[str, Accumulators], Accumulators],
    ) -> Accumulators:
        """A loop in which sums restart every ``block`` indices. The blocks are added in the wide type, or, if there is
        none, in blocks again: errors grow with the length of each chain of additions, not with that of the loop."""
        sums = [one for one in reductions if is_sum(one)]
        steps = [block] if all(wide(one) is not one for one in sums) else [block * _BLOCKS**2, block * _BLOCKS, block]
        constant = size.as_int()
        if constant is not None:
            steps = [length for length in steps if length < constant]
        if not sums or not steps:
            return self.loop(reductions, bounds, accumulators, step)
        found = self._cascade(reductions, bounds, steps, step, self._fresh(reductions, accumulators))
        return [
            self._join(one, before, narrowed(self.state, one, after, self.uniform)) if is_sum(one) else after
            for one, before, after in zip(reductions, accumulators, found, strict=True)
        ]

    def _join(self, reduction: Reduction, left: list[str], right: list[str]) -> list[str]:
        return combine(self.state, reduction, left, right, self.uniform)

    def _fresh(self, reductions: list[Reduction], accumulators: Accumulators) -> Accumulators:
        """Wide accumulators at the start of a block. Sums restart. Other reductions continue: products of few factors
        stay near 1, where floats below 1 are twice as dense as those above, and roundings do not cancel."""
        pairs = zip(reductions, accumulators, strict=True)
        return [identities(self.state, wide(a), self.uniform) if is_sum(a) else names for a, names in pairs]

    def _cascade(
        self,
        reductions: list[Reduction],
        bounds: tuple[str, str, str],
        steps: list[int],
        step: Callable[[str, Accumulators], Accumulators],
        start: Accumulators,
    ) -> Accumulators:
        """A loop over parts of ``steps[0]`` indices, each a loop over parts of ``steps[1]`` and so on. Returns wide
        accumulators."""
        state, (lower, upper, stride), (length, *inner) = self.state, bounds, steps

        def narrow(first: str, last: str, begin: Accumulators) -> Accumulators:
            pairs = zip(reductions, begin, strict=True)
            fresh = [identities(state, one, self.uniform) if is_sum(one) else names for one, names in pairs]
            found = self.loop(reductions, (first, last, stride), fresh, step)
            return [widened(state, one, names, self.uniform) for one, names in zip(reductions, found, strict=True)]

        def outer(first: str, current: Accumulators) -> Accumulators:
            after = state.writer.pure(f"arith.addi {first}, {state.constant(length, 'i64')} : i64")
            last, begin = state.writer.pure(f"arith.minsi {after}, {upper} : i64"), self._fresh(reductions, current)
            bounds = (first, last, stride)
            part = self._cascade(reductions, bounds, inner, step, begin) if inner else narrow(first, last, begin)
            return [
                self._join(wide(one), a, b) if is_sum(one) else b
                for one, a, b in zip(reductions, current, part, strict=True)
            ]

        return self.loop([wide(one) for one in reductions], (lower, upper, state.constant(length, "i64")), start, outer)

    def loop(
        self,
        reductions: list[Reduction],
        bounds: tuple[str, str, str],
        accumulators: Accumulators,
        step: Callable[[str, Accumulators], Accumulators],
    ) -> Accumulators:
        """A loop that carries accumulators."""
        kinds = [[e if self.uniform else self.state.vector(e) for e in one.elements] for one in reductions]
        typed = zip(accumulators, kinds, strict=True)
        carried = [pair for names, types_ in typed for pair in zip(names, types_, strict=True)]
        counts = [len(one) for one in kinds]

        def inside(index: str, names: list[str]) -> list[str]:
            return [name for one in step(index, _grouped(names, counts)) for name in one]

        return _grouped(self.state.writer.loop(bounds, carried, inside), counts)

    def _point(self, values: Values, accumulators: Accumulators) -> Accumulators:
        """The full-level instructions at one vector of points."""
        state = self.state
        values.update(self.given)
        for instr, access in self.current.loaded:
            read = Instr("load", instr.results, (), instr.dtype, False, arg=access.arg, address=access.address)
            self._access(read, values, self.buffers.get(access))
        kept = {instr.results[0]: access for instr, access in self.current.kept}
        found = {one.instr.results: (one, names) for one, names in zip(self.reductions, accumulators, strict=True)}
        updated: dict[tuple[int, ...], list[str]] = {}
        for instr in self.current.code:
            if instr.op == "reduce":
                one, names = found[instr.results]
                number = self._number() if one.arg else ""
                updated[instr.results] = accumulate(state, one, names, values[instr.operands[0]], number, self.uniform)
                continue
            if not instr.results or instr.results[0] not in self.given:
                self._access(instr, values, self.buffers.get(instr))
            if instr.results and instr.results[0] in kept:
                access = kept[instr.results[0]]
                waiting = replace(access, operands=instr.results)
                self._access(waiting, values, self.buffers.get(access))
        return [updated[one.instr.results] for one in self.reductions]

    def _access(self, instr: Instr, values: Values, buffer: str | None) -> None:
        """An instruction, with a load or store redirected to its buffer if it has one."""
        if buffer is None:
            instruction(self.state, instr, values)
            return
        assert self.layout.tile is not None
        index = self.state.symbols[self.layout.tile.name]
        if instr.op == "load":
            values[instr.results[0]] = transpose.row(self.state, instr, buffer, index)
        else:
            transpose.put(self.state, instr, buffer, index, values[instr.operands[0]])

    def _number(self) -> str:
        """The point's number among the reduced dims, in row-major order, for argmax."""
        state, number = self.state, Expr.const(0)
        for dim in state.kernel.dims:
            if dim.reduced:
                number = number * dim.size + Expr.symbol(dim.name)
        base = scalar(state, number)
        if self.layout.lane is None:
            return base
        stride = number.coefficient(self.layout.lane.name)
        assert stride is not None
        return state.along(base, scalar(state, stride), "i64")


def _grouped(names: Sequence[str], counts: Sequence[int]) -> Accumulators:
    iterator = iter(names)
    return [[next(iterator) for _ in range(count)] for count in counts]
