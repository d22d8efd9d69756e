"""plan-reductions: chooses the forms of each reduction kernel, and the sizes at which each is taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from torch_mlir import ir

from symshape.analysis.access_patterns import KernelAccesses
from symshape.machine.targets import GPU_WARP
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.plans.variant_table import Row, at_most, processors, remaining, row_bytes, tables, write_all
from symshape.prover.numbers.condition import FALSE, TRUE, Condition, all_of, at_least
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum

_VECTOR: Final = 16  # bytes of the widest access of a thread
_ELEMENT: Final = 4  # bytes per point above which holding a row that is read only once takes too many registers


@dataclass(frozen=True)
class PlanReductions(Pass):
    """Plans the form of each reduction by its number of rows, points per row, and processors, as index arithmetic.

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

    The form "persistent" holds all points of a row at once, so that nothing is read twice; short rows share a program.
    Rows of more than ``head`` points may be "headed": held as two blocks, the first of which is full. A single block
    must have a power of two of lanes; for 9973 points it would fill the registers of a processor, which then cannot
    load one row while it computes another (softmax of such rows on an H200: 416 us; 214 us with blocks of 8192 and
    2048). If there are too few rows to occupy all processors, and rows are long enough that a second launch pays off,
    several programs share a row:

        waves  = clamp(round(rows*reduced*bytes / (processors*share)), 1, most_waves)    // programs for each processor
        splits = max(1, min(waves*processors / rows, ceil(reduced/rblock), workspace / bytes of partial results - 1))

    More programs have more reads in flight (on an H200 one program reads 19 GB/s, a processor could 32), and balance
    numbers of rows that do not divide evenly among processors (133 rows on 132 of them). bench/split_model.py has the
    model that these choices are compared with. If a row then has at most ``most_parts`` parts, each part has ``part``
    points, which a program holds at once ("split_persistent"), so that no step waits for the one before. Variants that
    facts exclude are left out: rows of at most 1024 points are never looped or split. If rows, and not reduced points,
    are contiguous in memory (a reduction of columns), "row" means a group of ``column_rows`` neighbouring rows, or of
    ``wide_rows`` if there are so many that each thread may reduce rows of its own.

    ``persistent``    for each persistent variant the maximum reduced points
    ``column``        the same for reductions of columns
    ``head``          reduced points of the smallest first block; the second block has half as many, or as many
    ``once_head``     the same for rows that are read once, where looping costs little (except for half types)
    ``fine``          size of the first block from which the second block may also have a quarter of its points
    ``largest``       maximum reduced points of both blocks
    ``tile``          points of a program in a persistent variant, unless a row has more
    ``written_tile``  the same for rows of at most 32 points that are all written: 16 bytes per thread
    ``column_rows``   neighbouring rows that a program reduces together, in reductions of columns
    ``wide_rows``     the same if each processor has at least so many
    ``narrow``        widths of variants for columns that are split among programs, if there are at most so many columns
    ``part_bytes``    bytes of neighbouring rows in a split of more columns
    ``part``          points of a part that is held at once
    ``part_warps``    warps that hold it
    ``few_parts``     partial results of a row that are combined at a time
    ``column_parts``  the same for columns: for ``narrow`` ones; for others, of which a program combines eight
    ``most_parts``    maximum parts of a row; more than ``few_parts`` are combined all at once
    ``step``          minimum bytes of a row that is split
    ``share``         bytes that each program of a split reads if there is more than one wave
    ``most_waves``    maximum number of waves
    ``workspace``     maximum bytes of partial results
    ``one_launch``    the program of a row that ends last combines the row's partial results, instead of a second launch
                      (off: no GPU has run it so far)
    """

    name: ClassVar[str] = "plan-reductions"
    targets: ClassVar[tuple[str, ...]] = ("triton",)
    statistics: ClassVar[dict[str, str]] = {
        "kernels": "reduction kernels that were planned",
        "persistent": "variants that hold a row at once",
        "headed": "variants that hold a row in two blocks",
        "looped": "variants that read a row in steps",
        "split": "variants in which several programs share a row",
        "split_persistent": "variants of the form split in which each program holds its part at once",
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
    one_launch: bool = False

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
        """The split variants: first with parts that are held at once, then, for too many of those, read in steps."""
        rows = self._held_columns(kernel) if column else self._held_parts(kernel)
        xblock, rblock, taken = (self.column_rows, 64, self.column_parts[1]) if column else (1, 2048, self.few_parts)
        split = self.split(kernel, xblock, rblock)
        if split is not None:
            condition, splits = split
            rows.append(Row("split", "split", condition, xblock, taken, rblock=rblock, num_warps=8, splits=splits))
        return [replace(row, one_launch=self.one_launch) for row in rows]

    def _held_parts(self, kernel: KernelAccesses) -> list[Row]:
        """The split_persistent variants for rows, by number of partial results."""
        rows = []
        for name, most in (("split_persistent", self.few_parts), ("split_persistent_many", self.most_parts)):
            held = self._held_part(kernel, 1, most)
            if held is not None:
                row = Row(name, "split_persistent", held, 1, most, rblock=self.part, num_warps=self.part_warps)
                rows.append(row)
        return rows

    def _held_columns(self, kernel: KernelAccesses) -> list[Row]:
        """The split_persistent variants for columns: tiles as wide as the columns, up to ``part_bytes``. If several
        tensors are read, half the warps have as many bytes in flight."""
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
        """The condition under which at most ``most`` parts of ``width`` rows are held at once; None if never."""
        rblock = self.part // width
        split = self.split(kernel, width, rblock)
        if split is None:
            return None
        parts = ceildiv(kernel.rnumel, rblock)
        room = at_most(kernel.xnumel * kernel.partial_bytes * (parts + 1), self.workspace)
        return all_of(split[0], at_most(kernel.rnumel, rblock * most), room)

    def _rungs(self, kernel: KernelAccesses, column: bool) -> list[tuple[int, int]]:
        """Pairs of block sizes (first block, second block or 0) of the variants that hold a row, in reduced points,
        ascending. If the length of the longest row is known, the last pair holds just that."""
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
        """The smallest blocks that hold ``points``."""
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
            xblock, warps = 2 * self.tile // rblock, 4  # each thread reduces whole rows
        elif not column and rblock < self.tile and writes_points(kernel):
            tile = self.written_tile if rblock <= GPU_WARP else self.tile
            vectors = tile // GPU_WARP // (_VECTOR // element_bytes(kernel))
            xblock, warps = tile // rblock, vectors if rblock <= GPU_WARP else 2
        else:
            xblock = self.column_rows if column else max(1, self.tile // rblock)
            points = xblock * rblock
            each = 256 if column or points <= self.tile else 1024  # long rows: fewer warps have less to combine
            warps = min(16, max(1 if points <= self.tile else 4, points // each))
        return Row(f"persistent{rblock}", "persistent", condition, xblock, rblock=rblock, num_warps=warps)

    def split(self, kernel: KernelAccesses, xblock: int, rblock: int) -> tuple[Condition, Expr] | None:
        """The condition for splitting rows and the number of parts of each; None if rows are never split."""
        if kernel.xnumel.as_int() == 0 or not kernel.partial_bytes:
            return None  # there are no rows, or nothing is combined over them
        groups = kernel.xnumel if xblock == 1 else ceildiv(kernel.xnumel, xblock)
        if remaining(at_most(2 * kernel.xnumel, self.most_waves * processors() * xblock), kernel) == FALSE:
            return None  # always enough rows for every wave
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
    """Whether neighbouring rows, rather than the reduced points of a row, are contiguous in memory."""
    return kernel.fast is not None and not kernel.fast.reduced


def writes_points(kernel: KernelAccesses) -> bool:
    """Whether the kernel stores values at reduced points, besides results per row."""
    names = {d.name for d in kernel.reduced}
    return any(a.store and not names.isdisjoint(a.address.symbols) for a in kernel.accesses)


def element_bytes(kernel: KernelAccesses) -> int:
    """Bytes of the smallest element type that is read at each reduced point."""
    names = {d.name for d in kernel.reduced}
    read = [a for a in kernel.accesses if not a.store and not names.isdisjoint(a.address.symbols)]
    return max(1, min((kernel.arguments[a.arg].bits // 8 for a in read), default=_ELEMENT))
