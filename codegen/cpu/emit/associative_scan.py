"""Associative scans in blocks: each block is scanned, then combined with the total of the blocks before it.

The order of combination is a tree of a few levels with short blocks, so that rounding errors grow as slowly as in eager
mode, whose tree is over pairs. The tree depends on the length alone: results do not depend on the number of threads,
which take different rows. Where the points of a row are contiguous in memory, the points of a vector are combined with
those at distance 1, 2, 4, ... (Hillis and Steele), and the latency of one row overlaps with other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction, peel, side_by_side

_BLOCKS: Final = (1024, 32, 1)  # steps that are one of a level

Names = list[str]  # of carried values
Parts = list[Names]  # of each vector of rows


@dataclass(frozen=True)
class Code:
    """The full-level instructions of a scan: those before the combination, the combination function, and those that use
    its results."""

    before: tuple[Instr, ...]
    combine: tuple[Instr, ...]
    after: tuple[Instr, ...]
    carries: tuple[Instr, ...]  # "carry", in order of their numbers

    @property
    def dtypes(self) -> list[str]:
        return [instr.dtype for instr in self.carries]


def read(kernel: LoopKernel) -> Code:
    """Splits the instructions of an associative scan by when they are computed."""
    code = [instr for instr in kernel.code if not instr.row]
    maker = {number: instr for instr in code for number in instr.results}
    carries = tuple(sorted((i for i in code if i.op == "carry"), key=lambda i: i.carry))
    combine = _made(maker, [i.operands[0] for i in carries], ("carried", "element"))
    effects = [i for i in code if not i.results and i.op != "carry"]
    elements = [i.operands[1] for i in carries]
    wanted = _made(maker, [*elements, *(number for i in effects for number in i.operands)], ())
    late: set[int] = set()
    for instr in code:
        if instr.op == "scanned" or not late.isdisjoint(instr.operands):
            late.update(instr.results)
    after = [i for i in code if i in effects or i in wanted and not late.isdisjoint(i.results)]
    before = [i for i in code if i in wanted and i not in after and i.op != "element"]
    return Code(tuple(before), tuple(i for i in code if i in combine), tuple(after), carries)


def _made(maker: dict[int, Instr], numbers: Sequence[int], given: Sequence[str]) -> set[Instr]:
    """The instructions that the values depend on, except for those that are ``given``."""
    found: set[Instr] = set()
    waiting = list(numbers)
    while waiting:
        instr = maker.get(waiting.pop())
        if instr is not None and instr.op not in given and instr not in found:
            found.add(instr)
            waiting.extend(instr.operands)
    return found


@dataclass(frozen=True)
class Prefix:
    """The combination of all points before a point. ``there``: an i1, whether there are any; None: there are none, and
    ``parts`` are unspecified."""

    there: str | None
    parts: Parts


class Rows:
    """Writes the scan of one row, or of vectors of rows.

    ``values``: row-level values, per vector. ``lane``: (dim that runs over the rows, index of the first row, end,
    whether all lanes are before the end). ``along``: the dim along the lanes instead, if one row is scanned.
    """

    def __init__(
        self,
        state: State,
        values: list[Values],
        *,
        lane: tuple[Dim, str, str, bool] | None = None,
        along: Dim | None = None,
    ) -> None:
        self.state, self.values, self.lane, self.along = state, values, lane, along
        self.code = read(state.kernel)
        self.uniform = lane is None and along is None
        self.kinds = [types.register(t) if self.uniform else state.vector(types.register(t)) for t in self.code.dtypes]

    def run(self) -> None:
        """Writes the loops over all points."""
        reduced = [dim for dim in self.state.kernel.dims if dim.reduced]
        if self.along is None:
            self._nest(reduced, Prefix(None, self._nothing()))
            return
        state, pure = self.state, self.state.writer.pure
        zero, end = state.constant(0, "i64"), scalar(state, self.along.size)
        whole = peel(state, zero, end, state.width)
        total = self._blocks(0, self.along, zero, whole, Prefix(None, self._nothing()))
        left = pure(f"arith.cmpi slt, {whole}, {end} : i64")
        before = Prefix(pure(f"arith.cmpi sgt, {whole}, {zero} : i64"), total)

        def rest() -> list[str]:
            self._points(whole, end, False, Prefix(None, self._nothing()), before)
            return []

        state.writer.branch(left, [], rest)

    def _nothing(self) -> Parts:
        constant = self.state.constant if self.uniform else self.state.splat
        return [[constant(0, types.register(t)) for t in self.code.dtypes] for _ in self.values]

    # Levels.

    def _nest(self, dims: Sequence[Dim], prefix: Prefix) -> Parts:
        """Loops over the reduced dims; returns the combination of all their points."""
        dim, *others = dims
        zero, end = self.state.constant(0, "i64"), scalar(self.state, dim.size)
        if not others:
            return self._blocks(0, dim, zero, end, prefix)

        def inside(index: str, own: Prefix) -> Parts:
            self.state.symbols[dim.name] = index
            return self._joined(own, self._nest(others, self._extended(prefix, own)))

        return self._loop((zero, end, self.state.constant(1, "i64")), inside)

    def _blocks(self, level: int, dim: Dim, begin: str, end: str, prefix: Prefix) -> Parts:
        """Loops over the blocks of one level in [begin, end); returns their combination."""
        pure, steps = self.state.writer.pure, self.state.width if self.along is not None else 1
        size = self.state.constant(_BLOCKS[level] * steps, "i64")

        def inside(index: str, own: Prefix) -> Parts:
            if level + 1 == len(_BLOCKS):
                return self._points(index, end, True, own, prefix)
            after = pure(f"arith.addi {index}, {size} : i64")
            until = pure(f"arith.minsi {after}, {end} : i64")
            return self._joined(own, self._blocks(level + 1, dim, index, until, self._extended(prefix, own)))

        return self._loop((begin, end, size), inside)

    def _loop(self, bounds: tuple[str, str, str], inside: Callable[[str, Prefix], Parts]) -> Parts:
        """A loop that carries the combination so far: ``inside(index, combination so far)`` returns the next one."""
        count = len(self.kinds)

        def body(index: str, names: list[str]) -> list[str]:
            self.state.uniform_depth = self.state.writer.depth
            there = self.state.writer.pure(f"arith.cmpi ne, {index}, {bounds[0]} : i64")
            made = inside(index, Prefix(there, [names[k : k + count] for k in range(0, len(names), count)]))
            return [name for part in made for name in part]

        start = [name for part in self._nothing() for name in part]
        kinds = self.kinds * len(self.values)
        names = self.state.writer.loop(bounds, list(zip(start, kinds, strict=True)), body)
        return [names[k : k + count] for k in range(0, len(names), count)]

    def _extended(self, outer: Prefix, own: Prefix) -> Prefix:
        """The prefix of the points in a block: the prefix of the enclosing level, combined with that of this level."""
        if outer.there is None:
            return own
        assert own.there is not None
        there = self.state.writer.pure(f"arith.ori {outer.there}, {own.there} : i1")
        parts = []
        for k, (a, b) in enumerate(zip(outer.parts, own.parts, strict=True)):
            parts.append(self._select(own.there, self._after(outer.there, a, b, k), a))
        return Prefix(there, parts)

    def _joined(self, own: Prefix, made: Parts) -> Parts:
        """The combination carried by a loop, after one more block."""
        return [self._after(own.there, a, b, k) for k, (a, b) in enumerate(zip(own.parts, made, strict=True))]

    def _after(self, there: str | None, left: Names, right: Names, k: int) -> Names:
        """``right``, combined with ``left`` on its left if ``there``."""
        return right if there is None else self._select(there, self._combined(left, right, k), right)

    def _select(self, condition: str, yes: Names, no: Names) -> Names:
        pure = self.state.writer.pure
        return [
            pure(f"arith.select {condition}, {a}, {b} : {kind}") for a, b, kind in zip(yes, no, self.kinds, strict=True)
        ]

    def _combined(self, left: Names, right: Names, k: int) -> Names:
        """Calls the combination function."""
        values = dict(self.values[k])
        for instr in self.state.kernel.code:
            if instr.op in ("carried", "element"):
                name = (left if instr.op == "carried" else right)[instr.carry]
                values[instr.results[0]] = Value(name, instr.dtype, uniform=self.uniform)
        for instr in self.code.combine:
            instruction(self.state, instr, values)
        return [self._name(values[carry.operands[0]]) for carry in self.code.carries]

    def _name(self, value: Value) -> str:
        return value.name if self.uniform else self.state.lanes(value)

    # Points.

    def _points(self, index: str, end: str, full: bool, own: Prefix, prefix: Prefix) -> Parts:
        """One point of each row, or one vector of points; returns the combination of ``own`` and these points."""
        state = self.state
        state.uniform_depth = state.writer.depth
        if self.along is not None:
            return side_by_side(state, self.along, index, end, lambda k: self._vector(own, prefix), copies=1, full=full)
        dim = [dim for dim in state.kernel.dims if dim.reduced][-1]
        state.symbols[dim.name] = index
        if self.lane is None:
            return [self._point(own, prefix, 0)]
        lane, first, until, whole = self.lane
        return side_by_side(
            state, lane, first, until, lambda k: self._point(own, prefix, k), copies=len(self.values), full=whole
        )

    def _point(self, own: Prefix, prefix: Prefix, k: int) -> Names:
        values = dict(self.values[k])
        made = self._after(own.there, own.parts[k], self._elements(values), k)
        self._finish(values, self._after(prefix.there, prefix.parts[k], made, k))
        return made

    def _vector(self, own: Prefix, prefix: Prefix) -> Names:
        """Scans one vector of points. The carried value is the last lane's alone, so that the chain from vector to
        vector is short."""
        state, pure, values = self.state, self.state.writer.pure, dict(self.values[0])
        made, distance = self._elements(values), 1
        while distance < state.width:
            moved = [self._shuffled(name, kind, distance) for name, kind in zip(made, self.kinds, strict=True)]
            lanes = ", ".join("true" if i >= distance else "false" for i in range(state.width))
            later = pure(f"arith.constant dense<[{lanes}]> : {state.vector('i1')}")
            combined = self._combined(moved, made, 0)
            made = [
                pure(f"arith.select {later}, {a}, {b} : {state.vector('i1')}, {kind}")
                for a, b, kind in zip(combined, made, self.kinds, strict=True)
            ]
            distance *= 2
        last = [self._shuffled(name, kind, None) for name, kind in zip(made, self.kinds, strict=True)]
        total = self._after(own.there, own.parts[0], last, 0)
        made = self._after(own.there, own.parts[0], made, 0)
        self._finish(values, self._after(prefix.there, prefix.parts[0], made, 0))
        return total

    def _shuffled(self, name: str, kind: str, distance: int | None) -> str:
        """The lanes at ``distance`` before each lane; None: the last lane in all lanes."""
        width = self.state.width
        lanes = [width - 1] * width if distance is None else [max(i - distance, 0) for i in range(width)]
        return self.state.writer.pure(f"vector.shuffle {name}, {name} {lanes} : {kind}, {kind}")

    def _elements(self, values: Values) -> Names:
        for instr in self.code.before:
            instruction(self.state, instr, values)
        maker = {i.results[0]: i.operands[0] for i in self.state.kernel.code if i.op == "element"}
        return [self._name(values[maker[carry.operands[1]]]) for carry in self.code.carries]

    def _finish(self, values: Values, results: Names) -> None:
        for instr in self.code.after:
            if instr.op == "scanned":
                values[instr.results[0]] = Value(results[instr.carry], instr.dtype, uniform=self.uniform)
            else:
                instruction(self.state, instr, values)
