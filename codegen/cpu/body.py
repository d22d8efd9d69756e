"""The body function of a kernel: ``NAME_body(context, begin, end)`` runs a range of its units of work.

A unit is one point of the parallel dims other than the lane dim, times one block of the lane dim where that is parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from symshape.codegen.cpu import arithmetic, memory
from symshape.codegen.cpu.combiners import Reduction, accumulate, across_lanes, combine, identities, reduction, results
from symshape.codegen.cpu.expressions import floor_divide, scalar
from symshape.codegen.cpu.schedule import Pass, Schedule, weight
from symshape.codegen.cpu.state import State, Value
from symshape.codegen.loops import Dim, Instr
from symshape.prover.expr import Expr, ceildiv, product

BLOCK = 2048  # elements of the lane dim in one unit
_SUM_BLOCK = 4096  # elements of the lane dim that are added up before they join the row's sum (rounding errors)
_ROWS_BLOCK = 256  # the same for a scalar loop over a reduced dim
_CHAIN, _LONG_CHAIN = 8, 12  # the weight of functions whose operations wait for each other

Result = TypeVar("Result")
Values = dict[int, Value]
Accumulators = list[list[str]]  # per reduction of a pass


@dataclass(frozen=True)
class Units:
    """The counters that make up a unit's number, the last one running fastest: (dim name or "" for the block, size)."""

    counters: tuple[tuple[str, Expr], ...]

    @property
    def count(self) -> Expr:
        return product(size for _, size in self.counters)


def units(dims: Sequence[Dim], lane: int | None) -> Units:
    """The units of a kernel."""
    counters = [(dim.name, dim.size) for i, dim in enumerate(dims) if not dim.reduced and i != lane]
    if lane is not None and not dims[lane].reduced:
        counters.append(("", ceildiv(dims[lane].size, BLOCK)))
    return Units(tuple(counter for counter in counters if counter[1].as_int() != 1 or counter[0]))


class Body:
    """Writes the loops of one kernel."""

    def __init__(self, state: State, schedule: Schedule) -> None:
        self.state, self.schedule = state, schedule
        self.dims = state.kernel.dims
        self.lane = None if schedule.lane is None else self.dims[schedule.lane]
        self.reduced = [d for d in self.dims if d.reduced and d is not self.lane]
        self.has_reductions = any(d.reduced for d in self.dims)

    def emit(self, begin: str, end: str) -> None:
        """The loop over the units in [begin, end)."""
        state, writer = self.state, self.state.writer
        counters = units(self.dims, self.schedule.lane).counters
        one = state.constant(1, "i64")
        if len(counters) <= 1:

            def single(unit: str, _: list[str]) -> list[str]:
                self._unit({counters[0][0]: unit} if counters else {})
                return []

            writer.loop((begin, end, one), [], single)
            return
        sizes = [scalar(state, size) for _, size in counters]
        start = self._split(begin, sizes)

        def several(unit: str, current: list[str]) -> list[str]:
            self._unit({name: value for (name, _), value in zip(counters, current)})
            return self._advance(current, sizes)

        writer.loop((begin, end, one), [(value, "i64") for value in start], several)

    def _split(self, number: str, sizes: list[str]) -> list[str]:
        """The counters' values in the unit of that number."""
        state, values = self.state, []
        one = state.constant(1, "i64")
        for size in reversed(sizes[1:]):
            positive = state.writer.pure(f"arith.maxsi {size}, {one} : i64")
            number, rest = floor_divide(state, number, positive)
            values.append(rest)
        return [number, *reversed(values)]

    def _advance(self, current: list[str], sizes: list[str]) -> list[str]:
        """The counters of the next unit: like an odometer, no division."""
        pure, state = self.state.writer.pure, self.state
        zero, one = state.constant(0, "i64"), state.constant(1, "i64")
        carry, following = one, []
        for position in range(len(current) - 1, -1, -1):
            value = pure(f"arith.addi {current[position]}, {carry} : i64")
            if position:
                full = pure(f"arith.cmpi eq, {value}, {sizes[position]} : i64")
                value = pure(f"arith.select {full}, {zero}, {value} : i64")
                carry = pure(f"arith.extui {full} : i1 to i64")
            following.append(value)
        return following[::-1]

    def _unit(self, counters: dict[str, str]) -> None:
        state = self.state
        block = counters.pop("", None)
        state.symbols.update(counters)
        if self.lane is None or self.lane.reduced:
            state.uniform_depth = state.writer.depth
            self._stages()
            return
        size = scalar(state, self.lane.size)
        begin, end = state.constant(0, "i64"), size
        if block is not None:
            length = state.constant(BLOCK, "i64")
            begin = state.writer.pure(f"arith.muli {block}, {length} : i64")
            end = state.writer.pure(f"arith.minsi {state.writer.pure(f'arith.addi {begin}, {length} : i64')}, {size} : i64")
        state.uniform_depth = state.writer.depth

        copies = 1 if self.has_reductions else self._copies(self.schedule.passes)

        def vectors(position: str, _: list[str]) -> list[str]:
            self._side_by_side(copies, position, end, lambda _: self._stages())
            return []

        state.writer.loop((begin, end, state.constant(copies * state.width, "i64")), [], vectors)

    def _copies(self, passes: Sequence[Pass]) -> int:
        """How many vectors one iteration of the vector loop computes.

        Several where operations wait for each other in long chains; but rows may be short, and the last iteration of
        each is done in full: only where the lane dim is known to be long, or is all there is, four.
        """
        assert self.lane is not None
        size = self.lane.size.as_int()
        chain = sum(weight(i) for one in passes for i in one.code if weight(i) >= _CHAIN and not _uniform(i, self.lane))
        if chain < _LONG_CHAIN and (chain < _CHAIN or self.has_reductions) or size is not None and size <= self.state.width:
            return 1
        return 4 if len(self.dims) == 1 or size is not None and size >= 16 * self.state.width else 2

    def _side_by_side(self, copies: int, position: str, end: str, body: Callable[[int], Result]) -> list[Result]:
        """body(k) for consecutive vectors of the lane dim, their operations interleaved."""

        def one(k: int) -> Result:
            offset = self.state.constant(k * self.state.width, "i64")
            start = self.state.writer.pure(f"arith.addi {position}, {offset} : i64") if k else position
            with _Lanes(self.state, self.lane, start, end):
                return body(k)

        return self.state.writer.interleave([partial(one, k) for k in range(copies)])

    def _stages(self) -> None:
        """Row level and passes in turn, at one point of the parallel dims (or one vector of points)."""
        values: Values = {}
        for k, row in enumerate(self.schedule.rows):
            for instr in row:
                self._instruction(instr, values)
            if k < len(self.schedule.passes):
                self._pass(self.schedule.passes[k], values)

    def _pass(self, current: Pass, values: Values) -> None:
        reductions = [reduction(instr) for instr in current.reduces]
        across = self.lane is not None and self.lane.reduced
        uniform = self.lane is None

        def leaf(accumulators: Accumulators) -> Accumulators:
            return self._point(current, dict(values), reductions, accumulators)

        def lanes(accumulators: Accumulators) -> Accumulators:
            return self._vector_loop(current, reductions, accumulators, leaf)

        start = [identities(self.state, one, uniform) for one in reductions]
        final = self._nest(reductions, self.reduced, start, lanes if across else leaf)
        for one, accumulators in zip(reductions, final):
            total = across_lanes(self.state, one, accumulators) if across else accumulators
            for number, value in zip(one.instr.results, results(self.state, one, total, across or uniform)):
                values[number] = value

    def _nest(
        self, reductions: list[Reduction], dims: list[Dim], accumulators: Accumulators,
        inner: Callable[[Accumulators], Accumulators],
    ) -> Accumulators:
        """Loops over reduced dims. Sums start at zero at each level and join the outer level's: short chains of additions."""
        if not dims:
            return inner(accumulators)
        state, (dim, *others) = self.state, dims
        size = scalar(state, dim.size)

        def step(index: str, current: Accumulators) -> Accumulators:
            state.symbols[dim.name] = index
            if self.lane is None or self.lane.reduced:
                state.uniform_depth = state.writer.depth
            return self._nest(reductions, others, current, inner)

        one = state.constant(1, "i64")
        return self._blocked(reductions, (state.constant(0, "i64"), size, one), _ROWS_BLOCK, dim.size, accumulators, step)

    def _vector_loop(
        self, current: Pass, reductions: list[Reduction], accumulators: Accumulators,
        leaf: Callable[[Accumulators], Accumulators],
    ) -> Accumulators:
        """The loop over a reduced lane dim; the copies accumulate separately and are combined at its end."""
        assert self.lane is not None
        state = self.state
        size = scalar(state, self.lane.size)
        state.uniform_depth = state.writer.depth

        count, copies = len(reductions), self._copies([current])

        def step(position: str, names: Accumulators) -> Accumulators:
            parts = self._side_by_side(copies, position, size, lambda k: leaf(names[k * count:(k + 1) * count]))
            return [one for part in parts for one in part]

        bounds = state.constant(0, "i64"), size, state.constant(copies * state.width, "i64")
        start = accumulators + [identities(state, one, False) for one in reductions] * (copies - 1)
        final = self._blocked(reductions * copies, bounds, _SUM_BLOCK, self.lane.size, start, step)
        return [_tree(state, one, final[k::count]) for k, one in enumerate(reductions)]

    def _blocked(
        self, reductions: list[Reduction], bounds: tuple[str, str, str], block: int, size: Expr, accumulators: Accumulators,
        step: Callable[[str, Accumulators], Accumulators],
    ) -> Accumulators:
        """A loop in which sums restart every ``block`` iterations' worth of indices."""
        state, (lower, upper, stride) = self.state, bounds
        constant = size.as_int()
        sums = any(one.combiner == "add" and one.element.startswith("f") for one in reductions)
        if not sums or (constant is not None and constant <= block):
            return self._loop(reductions, bounds, accumulators, step)

        def outer(first: str, current: Accumulators) -> Accumulators:
            length = state.constant(block, "i64")
            after = state.writer.pure(f"arith.addi {first}, {length} : i64")
            last = state.writer.pure(f"arith.minsi {after}, {upper} : i64")
            fresh = [identities(state, one, self.lane is None) for one in reductions]
            partial = self._loop(reductions, (first, last, stride), fresh, step)
            return [combine(state, o, a, b, self.lane is None) for o, a, b in zip(reductions, current, partial)]

        return self._loop(reductions, (lower, upper, state.constant(block, "i64")), accumulators, outer)

    def _loop(
        self, reductions: list[Reduction], bounds: tuple[str, str, str], accumulators: Accumulators,
        step: Callable[[str, Accumulators], Accumulators],
    ) -> Accumulators:
        """A loop that carries accumulators."""
        state = self.state
        kinds = [[e if self.lane is None else state.vector(e) for e in one.elements] for one in reductions]
        carried = [pair for names, types_ in zip(accumulators, kinds) for pair in zip(names, types_)]
        counts = [len(one) for one in kinds]

        def inside(index: str, names: list[str]) -> list[str]:
            return [name for one in step(index, _grouped(names, counts)) for name in one]

        return _grouped(state.writer.loop(bounds, carried, inside), counts)

    def _point(
        self, current: Pass, values: Values, reductions: list[Reduction], accumulators: Accumulators,
    ) -> Accumulators:
        """The full-level instructions of a pass, at one vector of points."""
        state = self.state
        for instr, place in current.loaded:
            read = Instr("load", instr.results, (), instr.dtype, False, arg=place.arg, address=place.address)
            values[instr.results[0]] = memory.load(state, read)
        kept = {instr.results[0]: place for instr, place in current.kept}
        updated = dict(zip((one.instr.results for one in reductions), accumulators))
        by_results = {one.instr.results: one for one in reductions}
        for instr in current.code:
            if instr.op != "reduce":
                self._instruction(instr, values)
                if instr.results and instr.results[0] in kept:
                    memory.store(state, kept[instr.results[0]], values[instr.results[0]])
                continue
            one = by_results[instr.results]
            index = self._reduced_index() if one.arg else ""
            operand = values[instr.operands[0]]
            updated[instr.results] = accumulate(state, one, updated[instr.results], operand, index, self.lane is None)
        return list(updated.values())

    def _reduced_index(self) -> str:
        """The point's number among the reduced dims, in row-major order."""
        state, number = self.state, Expr.const(0)
        for dim in self.dims:
            if dim.reduced:
                number = number * dim.size + Expr.symbol(dim.name)
        base = scalar(state, number)
        if self.lane is None:
            return base
        stride = number.coefficient(self.lane.name)
        assert stride is not None
        return state.along(base, scalar(state, stride), "i64")

    def _instruction(self, instr: Instr, values: Values) -> None:
        state = self.state
        operands = [values[operand] for operand in instr.operands]
        match instr.op:
            case "store":
                memory.store(state, instr, operands[0])
                return
            case "load":
                value = memory.load(state, instr)
            case "extract":
                value = memory.extract(state, instr, operands)
            case "check_index":
                value = memory.check_index(state, instr, operands[0])
            case "index":
                value = arithmetic.index(state, instr)
            case "constant":
                value = arithmetic.constant(state, instr)
            case _:
                value = arithmetic.apply(state, instr, operands)
        values[instr.results[0]] = value


class _Lanes:
    """Within it, the lane dim runs over the lanes from ``position``; lanes at or after ``end`` are inactive."""

    def __init__(self, state: State, lane: Dim | None, position: str, end: str) -> None:
        assert lane is not None
        self.state, self.lane, self.position, self.end = state, lane, position, end

    def __enter__(self) -> None:
        state, pure = self.state, self.state.writer.pure
        state.symbols[self.lane.name] = self.position
        state.lane = self.lane.name
        left = pure(f"arith.subi {self.end}, {self.position} : i64")
        near = pure(f"arith.minsi {left}, {state.constant(state.width, 'i64')} : i64")
        narrow = pure(f"arith.trunci {near} : i64 to i32")
        state.mask = pure(f"arith.cmpi slt, {state.iota('i32')}, {state.broadcast(narrow, 'i32')} : {state.vector('i32')}")

    def __exit__(self, *_: object) -> None:
        self.state.lane = self.state.mask = None


def _uniform(instr: Instr, lane: Dim) -> bool:
    """Whether the instruction is known to run outside the vector loop."""
    return instr.address is not None and lane.name not in instr.address.symbols


def _tree(state: State, reduction: Reduction, parts: Accumulators) -> list[str]:
    """Accumulators of the copies combined in pairs."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [combine(state, reduction, left, right, False) for left, right in pairs]
    return parts[0]


def _grouped(names: Sequence[str], counts: Sequence[int]) -> Accumulators:
    iterator = iter(names)
    return [[next(iterator) for _ in range(count)] for count in counts]
