"""Facts at the points of a kernel's iteration space: ranges of dims, non-negative sizes, assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final

from symshape.analysis.loops import Arg, Dim
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts, Row

_KEPT: Final = 64  # size of the caches: kernels of a graph share few combinations of sizes


class SpaceFacts:
    """Facts at the points of a space: ``full`` at all its points, ``row`` where the reduced dims may be empty."""

    def __init__(self, symbols: Facts, dims: Sequence[Dim]) -> None:
        self.symbols, self._dims = symbols, dims

    @cached_property
    def full(self) -> Facts:
        return self.symbols.with_dims({d.name: d.size for d in self._dims})

    @cached_property
    def row(self) -> Facts:
        if not any(d.reduced for d in self._dims):
            return self.full
        return self.symbols.with_dims({d.name: d.size for d in self._dims if not d.reduced})

    def at(self, where: Iterable[Expr]) -> SpaceFacts:
        """The facts at the points at which each of the expressions is at least 0."""
        found = SpaceFacts(self.symbols, self._dims)
        found.full = self.full.copy()
        for expr in where:
            found.full.assume_nonnegative(expr)
        return found

    def simplify(self, expr: Expr, row: bool) -> Expr:
        """The simplest form of an expression, valid at row level or at full level."""
        return (self.row if row else self.full).simplify(expr)


def space_facts(args: Iterable[Arg], dims: Iterable[Dim]) -> SpaceFacts:
    """The facts that hold without assumptions: indices are within dims, and sizes of tensors are non-negative."""
    return _space_facts(_symbolic_sizes(args), tuple(dims))


def symbol_facts(args: Iterable[Arg]) -> Facts:
    """The facts about symbols alone, as a copy to which assumptions may be added."""
    return _symbol_facts(_symbolic_sizes(args)).copy()


def divides(facts: Facts, factor: Expr, size: Expr) -> bool:
    """Whether ``factor`` is proven to divide ``size``."""
    number = factor.as_int()
    return facts.equal(size % factor, 0) if number is None else number != 0 and facts.divides(number, size)


def _symbolic_sizes(args: Iterable[Arg]) -> tuple[Expr, ...]:
    return tuple(dict.fromkeys(size for arg in args for size in arg.sizes if size.as_int() is None))


def forget_facts() -> None:
    """Clears the facts that are cached from one kernel to the next."""
    _space_facts.cache_clear()
    _symbol_facts.cache_clear()


@lru_cache(maxsize=_KEPT)
def _space_facts(sizes: tuple[Expr, ...], dims: tuple[Dim, ...]) -> SpaceFacts:
    return SpaceFacts(_symbol_facts(sizes), dims)


@lru_cache(maxsize=_KEPT)
def _symbol_facts(sizes: tuple[Expr, ...]) -> Facts:
    names = {name for size in sizes for name in size.symbols}
    facts = Facts({name: Row(0, None) for name in sorted(names) if Expr.symbol(name) in sizes})
    # Simple sizes first: facts about others then often follow from them.
    for size in sorted(sizes, key=lambda size: (len(size.terms), len(size.python()))):
        facts.assume_nonnegative(size)
    return facts
