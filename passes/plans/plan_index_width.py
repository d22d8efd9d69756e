"""plan-index-width: 32-bit address arithmetic where all addresses fit, 64-bit otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch_mlir import ir

from symshape.analysis.access_patterns import KernelAccesses
from symshape.dialects.plans import SEPARATE, SPLIT
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.plans.variant_table import Row, at_most, tables, write_all
from symshape.prover.numbers.condition import TRUE, all_of, at_least
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class PlanIndexWidth(Pass):
    """Adds variants with 32-bit addresses, taken if these suffice, and keeps a 64-bit variant for other sizes.

    Before::

        "symshape.variant"(%true) {name = "block1024", index_bits = 64, ...}

    After::

        %fits = arith.cmpi sge, %limit, %points : index
        "symshape.variant"(%fits) {name = "block1024", index_bits = 32, ...}
        "symshape.variant"(%true) {name = "block1024_wide", index_bits = 64, ...}

    These must fit: the number of elements that each tensor argument spans, the number of points of the parallel and of
    the reduced dims, and each index argument in an address, which may also be negative. Not tested is what facts bound,
    and what is proven to be at most another tested number. Persistent variants and tiles get no 64-bit version: at
    such sizes the flat or looped variant runs.

    ``limit``  largest number that fits, with a margin for the lanes of the last block
    """

    name: ClassVar[str] = "plan-index-width"
    targets: ClassVar[tuple[str, ...]] = ("triton",)
    statistics: ClassVar[dict[str, str]] = {
        "proven": "kernels whose addresses always fit into 32 bits",
        "tested": "kernels in which a launch tests that",
        "wide": "64-bit variants, for launches where addresses do not fit",
    }
    limit: int = 2**31 - 2**17

    def run(self, module: ir.Module, context: PassContext) -> list[ir.Operation]:
        planned = tables(module, context)
        for table in planned:
            most = (at_most(bound, self.limit) for bound in bounds(table.kernel, self.limit))
            fits = all_of(*most, *(at_least(symbol, -self.limit) for symbol in negative(table.kernel, self.limit)))
            rows: list[Row] = []
            for row in table.rows:
                if row.form == SEPARATE:
                    rows.append(row)
                    continue
                condition = all_of(row.condition, fits)
                rows.append(replace(row, condition=condition, index_bits=32))
                if condition != row.condition and _has_wide_form(row, table.rows):
                    rows.append(replace(row, name=f"{row.name}_wide", op=None))
            self.count(context, **{"proven" if fits == TRUE else "tested": 1, "wide": len(rows) - len(table.rows)})
            table.rows = rows
        return write_all(planned)


def _has_wide_form(row: Row, rows: list[Row]) -> bool:
    return row.form in SPLIT or row is rows[-1]


def bounds(kernel: KernelAccesses, limit: int) -> list[Expr]:
    """Upper bounds of addresses, counts and arguments that must be tested: not those that facts, or another bound in
    the result, keep below ``limit``."""
    found: dict[Expr, None] = dict.fromkeys([kernel.xnumel, kernel.rnumel])
    for argument in kernel.arguments:
        span = Expr.const(1)
        for size, stride in zip(argument.sizes, argument.strides, strict=True):
            span = span + (size - 1) * stride
        found.setdefault(span)
    found.update(dict.fromkeys(Expr.symbol(name) for name in kernel.symbols))
    high = {name: kernel.facts.bounds(Expr.symbol(name))[1] for name in kernel.symbols}
    endless = {name for name in kernel.symbols if high[name] is None}
    # Not tried for symbols without an upper bound: the proof would take long and rarely succeed.
    open_ = [b for b in found if not endless.isdisjoint(b.symbols) or not kernel.facts.less_equal(b, limit)]
    return [bound for bound in open_ if not any(_within(bound, o, kernel) for o in open_ if o is not bound)]


def negative(kernel: KernelAccesses, limit: int) -> list[Expr]:
    """Symbols that facts do not bound below by ``-limit``: integer arguments of the user."""
    symbols = map(Expr.symbol, kernel.symbols)
    return [symbol for symbol in symbols if not kernel.facts.less_equal(-limit, symbol)]


def _within(expr: Expr, product: Expr, kernel: KernelAccesses) -> bool:
    """Whether ``product`` is ``expr`` times factors that are all at least 1."""
    rest = product.exact_quotient(expr) if len(product.terms) == 1 and len(expr.terms) == 1 and expr.symbols else None
    if rest is None or rest.constant:
        return False
    # No kernel is launched if a parallel dim is 0.
    at_least_one = {name for dim in kernel.parallel for name in [str(dim.size)]}
    return all(name in at_least_one or (kernel.facts.bounds(Expr.symbol(name))[0] or 0) >= 1 for name in rest.symbols)
