"""plan-alignment: adds variants that assume addresses to be multiples of 16 bytes, under one combined test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from torch_mlir import ir

from symshape.analysis.access_patterns import KernelAccesses
from symshape.dialects.accessors import MIXED
from symshape.dialects.plans import ALIGNMENT, SEPARATE, divides
from symshape.machine.targets import GPU_WARP
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.plans.addresses import allocated_arguments
from symshape.passes.plans.alignment import Needs, needs_of
from symshape.passes.plans.variant_table import MOST_VARIANTS, Row, row_bytes, tables, write_all
from symshape.prover.numbers.condition import all_of

_FLOAT = 4  # bytes of a float32
_TINY, _SHORT = 16, 128  # reduced points up to which alignment gains nothing, or little


@dataclass(frozen=True)
class PlanAlignment(Pass):
    """Adds variants that rely on alignment, under one combined test.

    Before::

        "symshape.variant"(%true) {name = "looped", form = "looped", aligned = [], ...}

    After::

        %a = "symshape.address"(%x) : (tensor<?x?xf32>) -> index
        %b = arith.ori %a, %s1 : index
        %c = arith.andi %b, %c15 : index
        %d = arith.cmpi eq, %c, %c0 : index
        "symshape.variant"(%d) {name = "looped_aligned", form = "looped", aligned = ["in0", "s1"], ...}
        "symshape.variant"(%true) {name = "looped", form = "looped", aligned = [], ...}

    Accesses of neighbouring elements become vector accesses of 16 bytes only if addresses, strides and the mask's
    bound are known to be multiples of 16 bytes. For each kernel these are: the addresses of tensors accessed along its
    fast dim, the symbols in the strides of its other dims, and the number of points along the fast dim (a symbol,
    "xnumel" or "rnumel"). The last is not needed for flat blocks and held parts of rows, whose full blocks have no
    mask. What facts prove, or what follows from another test, is not tested; buffers of the host program are aligned.
    If nothing is left to test there is no unaligned variant; if a stride can never be a multiple, no aligned one.
    A thread with 16-byte reads has as many bytes in flight as several other threads. Aligned parts of a split row
    therefore have half the warps (except for float32 values that are read once), those of split columns a quarter.
    Aligned rows of the form "mixed" are prefetched in ``stages``; unaligned rows are not, because asynchronous copies
    of less than 16 bytes to shared memory take longer than the latency they hide.

    If a kernel would have more than ``most`` variants, the least useful are dropped: aligned short rows, and unaligned
    32-bit variants, whose 64-bit counterparts are only a little slower.

    ``most``    maximum number of variants of a kernel
    ``stages``  number of groups of aligned rows in flight at a time (Triton's ``num_stages``), form "mixed"
    ``thread``  points of an aligned row per thread, form "mixed": for rows of less than 128 points, for longer rows
    """

    name: ClassVar[str] = "plan-alignment"
    targets: ClassVar[tuple[str, ...]] = ("triton",)
    statistics: ClassVar[dict[str, str]] = {
        "tested": "variants taken only if a test of alignment holds",
        "proven": "variants whose alignment follows from facts, without a test",
        "unaligned": "variants that assume no alignment",
        "dropped": "variants left out because a table was too long",
    }
    most: int = MOST_VARIANTS
    stages: int = 3
    thread: tuple[int, int] = (8, 16)

    def run(self, module: ir.Module, context: PassContext) -> list[ir.Operation]:
        planned = tables(module, context)
        allocated = allocated_arguments(module)
        for table in planned:
            kernel = table.kernel
            own = allocated.get(kernel.name, set())
            rows: list[Row] = []
            needs: dict[tuple[tuple[str, ...], bool], Needs | None] = {}
            for row in table.rows:
                if row.name.endswith("_wide") or row.form == SEPARATE:
                    rows.append(row)
                    continue
                key = row.dims, row.form == "split_persistent"
                if key not in needs:
                    needs[key] = needs_of(kernel, row.dims, own, whole=key[1])
                rows += self._with_aligned(row, needs[key], kernel)
            table.rows = trimmed(rows, self.most)
            self.count(context, dropped=len(rows) - len(table.rows), **Counter(map(_kind, table.rows)))
        return write_all(planned)

    def _with_aligned(self, row: Row, needs: Needs | None, kernel: KernelAccesses) -> list[Row]:
        tiny = row.form == "persistent" and row.rblock <= _TINY and kernel.fast is not None and kernel.fast.reduced
        thin = row.form == "tile" and min(row.xblock, row.yblock) < ALIGNMENT  # used only if a dim is that short
        narrow = row.form == "split_persistent" and 1 < row.xblock < ALIGNMENT  # at most so many contiguous columns
        if needs is None or tiny or thin or narrow:
            return [row]
        aligned = replace(self._wide(row, kernel), aligned=needs.names)
        if not needs.tested:
            return [aligned]
        condition = all_of(row.condition, *(divides(expr) for expr in needs.tested))
        aligned = replace(aligned, name=f"{row.name}_aligned", condition=condition, op=None)
        return [aligned, replace(row, aligned=needs.proven)]

    def _wide(self, row: Row, kernel: KernelAccesses) -> Row:
        """The row with warps and stages for 16-byte reads."""
        if row.form == MIXED:
            warps = max(2, row.xblock * row.rblock // (GPU_WARP * self.thread[row.rblock >= _SHORT]))
            return replace(row, num_warps=min(16, warps), num_stages=self.stages)
        if row.form != "split_persistent" or row.xblock == 1 and kernel.loops == 1 and row_bytes(kernel) == _FLOAT:
            return row
        return replace(row, num_warps=max(4, row.num_warps // (2 if row.xblock == 1 else 4)))


def _kind(row: Row) -> str:
    """The statistic that counts a row."""
    return "tested" if row.name.endswith("_aligned") else "proven" if row.aligned else "unaligned"


def trimmed(rows: list[Row], most: int) -> list[Row]:
    """At most ``most`` rows. Only rows whose sizes a later row covers are left out."""
    rows = list(rows)
    for row in list(_by_use(rows)):
        if len(rows) <= most:
            break
        rows.remove(row)
    return rows


def _by_use(rows: list[Row]) -> Iterator[Row]:
    """The dispensable rows, least useful first."""
    names = {row.name for row in rows}
    persistent = sorted((r for r in rows if r.form in ("persistent", "headed")), key=lambda r: r.rblock + r.yblock)
    aligned = [r for r in persistent if r.name.endswith("_aligned")]
    short = [r for r in aligned if r.xblock < r.rblock <= _SHORT]
    yield from short
    if "split_persistent_wide" in names:  # only very long rows take the form "split" then, and most need 64 bits
        yield from (r for r in rows if r.form == "split" and not r.name.endswith("_wide"))
    long = ("split", "looped", "split_persistent")
    yield from (r for r in rows if r.form in long and r.name == r.base and f"{r.name}_wide" in names)
    yield from (r for r in aligned if r not in short)
    yield from (r for r in persistent if not r.name.endswith("_aligned"))
