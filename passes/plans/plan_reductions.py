"""plan-reductions: the forms of each reduction kernel, and at which sizes each is taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

from torch_mlir import ir

from symshape.analysis.access_patterns import KernelAccesses
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.plans.variant_table import Row, at_most, processors, remaining, row_bytes, tables, write_all
from symshape.prover.numbers.condition import FALSE, TRUE, Condition, all_of, at_least
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum

_LANES: Final = 32  # threads of a warp
_VECTOR: Final = 16  # bytes of the widest access
_ELEMENT: Final = 4  # bytes of a point, beyond which holding a row that is read once takes too many registers


@dataclass(frozen=True)
class PlanReductions(Pass):
    """Plans the form of each reduction from its rows, the points of a row, and the processors, as index arithmetic.

    Before::

        "symshape.space"(%s0, %s1) {iterators = ["parallel", "reduction"]} : (index, index) -> ()

    After::

        "symshape.space"(%s0, %s1) {iterators = ["parallel", "reduction"]} : (index, index) -> ()
        %fits = arith.cmpi sge, %c128, %s1 : index
        "symshape.variant"(%fits) {name = "persistent128", form = "persistent", xblock = 8, rblock = 128, ...}
        %p = "symshape.processors"() : () -> index
        ...                                                    // few rows, each of them long
        "symshape.variant"(%few) {name = "split_persistent", form = "split_persistent", rblock = 8192, ...}
        "symshape.variant"(%few_longer, %splits) {name = "split", form = "split", rblock = 2048, ...}
        "symshape.variant"(%true) {name = "looped", form = "looped", rblock = 2048, ...}

    A row is "persistent" where all its points are held at once: nothing is read twice, and short rows share a program.
    One of more than ``head`` points is "headed": held as two blocks, of which the first is full. A block has a power of
    two of lanes, and those of one for 9973 points would fill the registers of a processor, which then cannot load one
    row while it computes another (softmax of such rows on an H200: 416 us, and 214 us in blocks of 8192 and 2048).
    Where rows are too few to occupy the processors and long enough that a second launch pays, programs share them:

        waves  = clamp(round(rows*reduced*bytes / (processors*share)), 1, most_waves)    // programs for each processor
        splits = max(1, min(waves*processors / rows, ceil(reduced/rblock), workspace / bytes of partial results - 1))

    More programs have more reads under way (on an H200 one program reads 19 GB/s, a processor could 32), and balance
    counts of rows that do not divide evenly among the processors (133 rows on 132 of them). bench/split_model.py is the
    model that this is held to. Where that gives at most ``most_parts``, each part is ``part`` points that are held at
    once ("split_persistent"), as many as it takes: nothing waits for the step before. What facts exclude is left out:
    rows of at most 1024 points are never looped or split. "Rows" are groups of ``column_rows`` neighbouring ones where
    those, and not the reduced points, lie next to each other in memory; of ``wide_rows`` where there are so many that
    each thread may reduce rows of its own.

    ``persistent``    reduced points of the persistent variants
    ``column``        the same, where the fast dim is parallel
    ``head``          reduced points of the shortest first block of two; the second has half as many, or as many
    ``once_head``     the same, where a row is read once: looping costs little there, but of half types
    ``fine``          the first block from which the second may have a quarter
    ``largest``       reduced points of both, at most
    ``tile``          points of a program in a persistent variant, unless a row has more
    ``written_tile``  the same for rows of at most 32 points of which each is written: a thread has 16 bytes of them
    ``column_rows``   neighbouring rows that a program reduces together where the fast dim is parallel
    ``wide_rows``     the same where every processor has so many
    ``narrow``        the same where columns are split among programs and are no more than that
    ``part_bytes``    of neighbouring rows where there are more
    ``part``          points of a part that is held at once
    ``part_warps``    that hold it
    ``few_parts``     partial results of a row that are combined at a time
    ``column_parts``  the same of columns: of ``narrow`` ones, and of others, of which a program combines eight
    ``most_parts``    of a row; more than ``few_parts`` are combined all at once
    ``step``          bytes of a row from which it is split
    ``share``         bytes that each program of a split reads, where there is more than one wave of them
    ``most_waves``    waves at most
    ``workspace``     bytes of partial results at most
    """

    name: ClassVar[str] = "plan-reductions"
    targets: ClassVar[tuple[str, ...]] = ("triton",)
    statistics: ClassVar[dict[str, str]] = {
        "kernels": "reduction kernels that were planned",
        "persistent": "variants that hold a row at once",
        "headed": "variants that hold a row in two blocks",
        "looped": "variants that read a row in steps",
        "split": "variants in which programs share a row",
        "split_persistent": "the same, where each holds its part at once",
    }
    persistent: tuple[int, ...] = (2, 8, 32, 128, 256, 512, 1024)
    column: tuple[int, ...] = (4, 16, 64)
    head: int = 1024
    once_head: int = 4096
    fine: int = 8192
    largest: int = 16384
    tile: int = 1024
    written_tile: int = 512
    column_rows: int = 64
    wide_rows: int = 1024
    narrow: tuple[int, ...] = (2, 8, 32)
    part_bytes: int = 128
    part: int = 8192
    part_warps: int = 16
    few_parts: int = 2048
    column_parts: tuple[int, int] = (4096, 512)
    most_parts: int = 16384
    step: int = 192 << 10
    share: int = 64 << 10
    most_waves: int = 8
    workspace: int = 4 << 20

    def run(self, module: ir.Module, context: PassContext) -> list[ir.Operation]:
        changed = []
        for table in tables(module, context):
            if table.kernel.reduced and not table.mixed:
                table.rows = self._rows(table.kernel)
                self.count(context, kernels=1, **Counter(row.form for row in table.rows))
                changed.append(table)
        return write_all(changed)

    def _rows(self, kernel: KernelAccesses) -> list[Row]:
        column = is_column(kernel)
        rows = [self._held(kernel, *rung, column) for rung in self._rungs(kernel, column)]
        if column and kernel.loops == 1:
            enough = at_least(kernel.xnumel, self.wide_rows * processors())
            rows.insert(1, Row("columns", "looped", enough, self.wide_rows, rblock=4, num_warps=8))
        xblock, rblock = (self.column_rows, 32) if column else (1, 2048)
        rows += self._split(kernel, column)
        return [*rows, Row("looped", "looped", TRUE, xblock, rblock=rblock, num_warps=8 if column else 16)]

    def _split(self, kernel: KernelAccesses, column: bool) -> list[Row]:
        """Parts that are held at once; or read in steps, where there would be too many of them to combine."""
        rows = self._held_columns(kernel) if column else self._held_parts(kernel)
        xblock, rblock, taken = (self.column_rows, 64, self.column_parts[1]) if column else (1, 2048, self.few_parts)
        split = self.split(kernel, xblock, rblock)
        if split is not None:
            condition, splits = split
            rows.append(Row("split", "split", condition, xblock, taken, rblock=rblock, num_warps=8, splits=splits))
        return rows

    def _held_parts(self, kernel: KernelAccesses) -> list[Row]:
        """The split variants of rows, by their number of partial results."""
        rows = []
        for name, most in (("split_persistent", self.few_parts), ("split_persistent_many", self.most_parts)):
            held = self._held_part(kernel, 1, most)
            if held is not None:
                row = Row(name, "split_persistent", held, 1, most, rblock=self.part, num_warps=self.part_warps)
                rows.append(row)
        return rows

    def _held_columns(self, kernel: KernelAccesses) -> list[Row]:
        """In tiles as wide as there are columns, up to ``part_bytes``; of several tensors in half of the warps, which
        read as much at once."""
        rows = []
        wide = max(self.narrow[-1], self.part_bytes // element_bytes(kernel))
        warps = self.part_warps if row_bytes(kernel) == element_bytes(kernel) else self.part_warps // 2
        for width, few in (*((width, True) for width in self.narrow), (wide, False)):
            held = self._held_part(kernel, width, self.most_parts)
            if held is not None:
                held = all_of(at_most(kernel.xnumel, width), held) if few else held
                name = f"split_persistent{width}" if few else "split_persistent"
                taken, rblock = self.column_parts[0 if few else 1], self.part // width
                rows.append(Row(name, "split_persistent", held, width, taken, rblock=rblock, num_warps=warps))
        return rows

    def _held_part(self, kernel: KernelAccesses, width: int, most: int) -> Condition | None:
        """The condition for at most ``most`` parts of ``width`` rows to be held at once; None if it never holds."""
        rblock = self.part // width
        split = self.split(kernel, width, rblock)
        if split is None:
            return None
        parts = ceildiv(kernel.rnumel, rblock)
        room = at_most(kernel.xnumel * kernel.partial_bytes * (parts + 1), self.workspace)
        return all_of(split[0], at_most(kernel.rnumel, rblock * most), room)

    def _rungs(self, kernel: KernelAccesses, column: bool) -> list[tuple[int, int]]:
        """Reduced points of the variants that hold a row: of the block, and of the one behind it. Where the longest row
        is known, the last holds just that."""
        once = kernel.sweeps == 1
        ladder = [(rung, 0) for rung in (self.column if column else self.persistent)]
        if not column and not (once and row_bytes(kernel) > _ELEMENT):
            ladder += self._headed(self.once_head if once and row_bytes(kernel) >= _ELEMENT else self.head)
        low, high = kernel.facts.bounds(kernel.rnumel)
        if high is None or high > max(map(sum, ladder)):
            return ladder
        longest = self._least(max(high, ladder[0][0]))
        return [longest] if low == high else [*(rung for rung in ladder if sum(rung) < high), longest]

    def _headed(self, head: int) -> list[tuple[int, int]]:
        rungs = []
        while 2 * head <= self.largest:
            parts = (4, 2, 1) if head >= self.fine else (2, 1)
            rungs += [(head, head // part) for part in parts]
            head *= 2
        return rungs

    def _least(self, points: int) -> tuple[int, int]:
        """The smallest blocks that hold so many points."""
        block = 1 << (points - 1).bit_length()
        head = block // 2
        if head < self.head or points == block:
            return block, 0
        return head, max(head // 8, 1 << (points - head - 1).bit_length())

    def _held(self, kernel: KernelAccesses, rblock: int, behind: int, column: bool) -> Row:
        condition = at_most(kernel.rnumel, rblock + behind)
        if behind:
            whole, warps = at_least(kernel.rnumel, rblock + 1), max(4, rblock // 1024)
            name = f"headed{rblock + behind}"
            return Row(name, "headed", all_of(whole, condition), 1, behind, rblock=rblock, num_warps=warps)
        if column and rblock <= 4:
            xblock, warps = 2 * self.tile // rblock, 4  # each thread reduces rows of its own
        elif not column and rblock < self.tile and writes_points(kernel):
            tile = self.written_tile if rblock <= _LANES else self.tile
            vectors = tile // _LANES // (_VECTOR // element_bytes(kernel))
            xblock, warps = tile // rblock, vectors if rblock <= _LANES else 2
        else:
            xblock = self.column_rows if column else max(1, self.tile // rblock)
            points = xblock * rblock
            each = 256 if column or points <= self.tile else 1024  # long rows: fewer warps have less to combine
            warps = min(16, max(1 if points <= self.tile else 4, points // each))
        return Row(f"persistent{rblock}", "persistent", condition, xblock, rblock=rblock, num_warps=warps)

    def split(self, kernel: KernelAccesses, xblock: int, rblock: int) -> tuple[Condition, Expr] | None:
        """When to split rows, and into how many parts each; None where that is never."""
        if kernel.xnumel.as_int() == 0 or not kernel.partial_bytes:
            return None  # no rows, or nothing that is combined over them
        groups = kernel.xnumel if xblock == 1 else ceildiv(kernel.xnumel, xblock)
        if remaining(at_most(2 * kernel.xnumel, self.most_waves * processors() * xblock), kernel) == FALSE:
            return None  # rows enough for every wave
        point = row_bytes(kernel) * xblock
        work = groups * kernel.rnumel * point
        share = self.share * processors()
        waves = maximum(1, minimum(self.most_waves, (work + self.share // 2 * processors()) // share))
        parts = [waves * processors() // groups, ceildiv(kernel.rnumel, rblock)]
        parts.append(self.workspace // (kernel.xnumel * kernel.partial_bytes) - 1)
        condition = all_of(
            at_least(kernel.rnumel * point, self.step),
            at_most(3 * kernel.xnumel * kernel.partial_bytes, self.workspace),
            at_least(waves * processors(), 2 * groups),
        )
        return condition, maximum(1, minimum(*parts))


def is_column(kernel: KernelAccesses) -> bool:
    """Whether rows, and not their reduced points, lie next to each other in memory."""
    return kernel.fast is not None and not kernel.fast.reduced


def writes_points(kernel: KernelAccesses) -> bool:
    """Whether something is written for each reduced point, not for each row."""
    names = {d.name for d in kernel.reduced}
    return any(a.store and not names.isdisjoint(a.address.symbols) for a in kernel.accesses)


def element_bytes(kernel: KernelAccesses) -> int:
    """Bytes of the smallest element that is read at each reduced point."""
    names = {d.name for d in kernel.reduced}
    read = [a for a in kernel.accesses if not a.store and not names.isdisjoint(a.address.symbols)]
    return max(1, min((kernel.arguments[a.arg].bits // 8 for a in read), default=_ELEMENT))
