"""What holds at the points of a kernel's iteration space: dims in their ranges, sizes not negative, assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from symshape.codegen.loops import Arg, Dim
from symshape.prover.expr import Expr
from symshape.prover.facts import Facts, Row


def symbol_facts(args: Iterable[Arg]) -> Facts:
    """Facts of the symbols alone: the size of a tensor is never negative."""
    sizes = dict.fromkeys(size for arg in args for size in arg.sizes if size.as_int() is None)
    names = {name for size in sizes for name in size.symbols}
    facts = Facts({name: Row(0, None) for name in sorted(names) if Expr.symbol(name) in sizes})
    for size in sizes:
        facts.assume_nonnegative(size)
    return facts


def divides(facts: Facts, factor: Expr, size: Expr) -> bool:
    """Whether the factor is proven to divide the size."""
    number = factor.as_int()
    return facts.equal(size % factor, 0) if number is None else number != 0 and facts.divides(number, size)


class SpaceFacts:
    """The facts at the points of a space. At row level the reduced dims may be empty."""

    def __init__(self, facts: Facts, dims: Sequence[Dim]) -> None:
        self._facts, self._dims = facts, dims

    @cached_property
    def full(self) -> Facts:
        return self._facts.with_dims({d.name: d.size for d in self._dims})

    @cached_property
    def row(self) -> Facts:
        if not any(d.reduced for d in self._dims):
            return self.full
        return self._facts.with_dims({d.name: d.size for d in self._dims if not d.reduced})

    def simplify(self, expr: Expr, row: bool) -> Expr:
        """The expression in its simplest form, for use at row or at full level."""
        return (self.row if row else self.full).simplify(expr)
