"""plan-index-width: 32-bit address arithmetic where all addresses fit, 64-bit otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from torch_mlir import ir

from symshape.passes.base import Pass, PassContext
from symshape.passes.plans.kernel import PlanKernel
from symshape.passes.plans.table import Row, at_most, tables, write_all
from symshape.prover.condition import all_of
from symshape.prover.expr import Expr


@dataclass(frozen=True)
class PlanIndexWidth(Pass):
    """Gives variants 32-bit addresses under the condition that these suffice, and keeps a 64-bit one for the rest.

    Before::

        "symshape.variant"(%true) {name = "block1024", index_bits = 64, ...}

    After::

        %fits = arith.cmpi sge, %limit, %points : index
        "symshape.variant"(%fits) {name = "block1024", index_bits = 32, ...}
        "symshape.variant"(%true) {name = "block1024_wide", index_bits = 64, ...}

    What must fit: the elements that every tensor argument spans, the points of the parallel and of the reduced dims,
    and every index argument. Of these, what is proven to be no more than another is not tested, and what facts bound
    neither. Persistent variants and tiles have no 64-bit form: the flat or looped one is right for so many points, too.

    ``limit``  the largest number that fits, with room for the lanes of a last block
    """

    name: ClassVar[str] = "plan-index-width"
    limit: int = 2**31 - 2**17

    def run(self, module: ir.Module, context: PassContext) -> bool:
        planned = tables(module, context)
        for table in planned:
            fits = all_of(*(at_most(bound, self.limit) for bound in bounds(table.kernel, self.limit)))
            rows: list[Row] = []
            for row in table.rows:
                condition = all_of(row.condition, fits)
                rows.append(replace(row, condition=condition, index_bits=32))
                if condition != row.condition and _has_wide_form(row, table.rows):
                    rows.append(replace(row, name=f"{row.name}_wide", op=None))
            table.rows = rows
        return write_all(planned)


def _has_wide_form(row: Row, rows: list[Row]) -> bool:
    return row.form == "split" or row is rows[-1]


def bounds(kernel: PlanKernel, limit: int) -> list[Expr]:
    """What addresses, counts and arguments come to at most, without what facts keep below the limit or another."""
    found: dict[Expr, None] = dict.fromkeys([kernel.xnumel, kernel.rnumel])
    for argument in kernel.arguments:
        span = Expr.const(1)
        for size, stride in zip(argument.sizes, argument.strides, strict=True):
            span = span + (size - 1) * stride
        found.setdefault(span)
    found.update(dict.fromkeys(Expr.symbol(name) for name in kernel.symbols))
    facts = kernel.facts.copy()
    for dim in kernel.parallel:
        facts.assume_nonnegative(dim.size - 1)  # else nothing is launched
    open_ = [bound for bound in found if (high := facts.bounds(bound)[1]) is None or high > limit]
    return _largest(open_, facts.less_equal)


def _largest(exprs: Iterable[Expr], less_equal: Callable[[Expr, Expr], bool]) -> list[Expr]:
    """Without those that are proven to be at most another one."""
    left: list[Expr] = []
    for expr in sorted(exprs, key=lambda e: -len(e.symbols)):
        if not any(less_equal(expr, other) for other in left):
            left = [other for other in left if not less_equal(other, expr)]
            left.append(expr)
    return left
