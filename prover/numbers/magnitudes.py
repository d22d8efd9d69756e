"""Bounds on magnitudes: whether an expression fits into 64 bits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from symshape.prover.numbers.expr import Expr, Function, product
from symshape.prover.numbers.facts import INT64_MAX, Facts

# Elements of a tensor, and so each of its sizes: addresses have 48 bits, and an element at least one byte
# that an element takes.
_MOST_ELEMENTS: Final = 2**48


@dataclass(frozen=True)
class Magnitudes:
    """Upper bounds of sizes in a function: of sizes of tensors (``shapes``) from the largest possible memory, of others
    from their ranges."""

    shapes: Collection[tuple[Expr, ...]]
    facts: Facts

    def fit(self, expr: Expr) -> bool:
        """Whether computing the expression in 64-bit integers overflows at no step."""
        return self._most(expr) <= INT64_MAX

    def _most(self, expr: Expr) -> int:
        """An upper bound of the magnitude of an expression and of its intermediate results."""
        return sum(abs(coefficient) * self._monomial(atoms) for atoms, coefficient in expr.monomials)

    def _monomial(self, atoms: tuple[Any, ...]) -> int:
        if len(atoms) > 1 and any(_is_part(atoms, whole) for whole in self._volumes):
            return _MOST_ELEMENTS
        most = 1
        for atom in atoms:
            most *= max(1, self._atom(atom))
        return most

    def _atom(self, atom: Any) -> int:
        if isinstance(atom, Function):
            return max(map(self._most, atom.args))
        if atom.name in self._sizes:
            return _MOST_ELEMENTS
        return max(INT64_MAX if bound is None else abs(bound) for bound in self.facts.bounds(Expr.symbol(atom.name)))

    @cached_property
    def _sizes(self) -> frozenset[str]:
        """The symbols in sizes of tensors."""
        return frozenset().union(*(size.symbols for shape in self.shapes for size in shape))

    @cached_property
    def _volumes(self) -> frozenset[tuple[Any, ...]]:
        """The products of symbols in numbers of elements of tensors."""
        numels = {product(shape) for shape in self.shapes}
        return frozenset(atoms for numel in numels for atoms, _ in numel.monomials if len(atoms) > 1)


def _is_part(atoms: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    """Whether the factors are a sub-multiset of ``whole``."""
    return all(atoms.count(atom) <= whole.count(atom) for atom in atoms)
