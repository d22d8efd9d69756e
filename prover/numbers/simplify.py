"""Simplifies expressions with known facts: floordiv, mod, max and min."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from math import gcd
from typing import Any, Final

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.expr import Atom, Expr, Function, maximum, minimum, only_floordiv
from symshape.prover.numbers.intervals import Interval
from symshape.prover.numbers.polynomial import Polynomial

_MAX_ROUNDS: Final = 8


class Simplifier:
    """Simplifies under one fixed set of facts, cached.

    `nonnegative` proves e >= 0, `interval` gives constant bounds, `exact(n, q)` proves that q divides n.
    """

    def __init__(
        self,
        nonnegative: Callable[[Expr], bool],
        interval: Callable[[Expr], Interval],
        exact: Callable[[Expr, Expr], bool],
    ) -> None:
        self._nonnegative = nonnegative
        self._interval = interval
        self._exact = exact
        self._atoms: dict[Atom, Expr] = {}
        self._results: dict[Expr, Expr] = {}
        self._nested: dict[Expr, Expr] = {}

    @property
    def caches(self) -> tuple[dict[Any, Any], ...]:
        """The cached results, in the order in which they were found."""
        return self._atoms, self._results, self._nested

    def simplify(self, expr: Expr) -> Expr:
        """An expression with the same value wherever the facts hold."""
        if not any(atom.opaque for monomial in expr._polynomial for atom in monomial):
            return expr
        found = self._results.get(expr)
        if found is not None:
            return found
        result = expr
        for _ in range(_MAX_ROUNDS):
            after = self._without_exact(result.map_atoms(self._atom))
            if after == result:
                break
            result = after
        self._results[expr] = result
        return result

    def with_nested_mods(self, expr: Expr) -> Expr:
        """n//a - b*(n//(a*b)), the normal form for positive b, as (n//a) % b, which is shorter; for printed results
        only."""
        if not any(atom.opaque for atom in expr.atoms):
            return expr
        if expr not in self._nested:  # kept: in e - q*(e//q) all of e is there twice
            self._nested[expr] = self._with_nested_mods(expr)
        return self._nested[expr]

    def _with_nested_mods(self, expr: Expr) -> Expr:
        result = expr.map_atoms(self._with_nested_args)
        functions = [atom for atom in result.atoms if isinstance(atom, Function) and atom.kind == "floordiv"]
        floordivs = sorted(functions, key=lambda atom: atom.key)
        for outer, inner in permutations(floordivs, 2):
            divisor = outer.args[1].exact_quotient(inner.args[1])
            if outer.args[0] != inner.args[0] or divisor is None or divisor.as_int() is not None:
                continue
            nested = Expr({(Function("floordiv", (Expr({(inner,): 1}), divisor)),): 1})
            replacements: dict[Atom, Expr] = {outer: nested}
            changed = result.map_atoms(replacements.get)
            if len(changed.terms) < len(result.terms) and self._nonnegative(divisor - 1):
                result = changed
        return result

    def _with_nested_args(self, atom: Atom) -> Expr | None:
        if not isinstance(atom, Function):
            return None
        return atom.rebuild(self.with_nested_mods(arg) for arg in atom.args)

    def _atom(self, atom: Atom) -> Expr | None:
        if not isinstance(atom, Function):
            return None
        if atom not in self._atoms:
            whole = Expr({(atom,): 1})
            try:
                rebuilt = atom.rebuild(self.simplify(arg) for arg in atom.args)
                self._atoms[atom] = rebuilt if rebuilt != whole else self._improved(atom, whole)
            except ZeroDivisionError:  # the divisor is known to be 0: the expression has no value
                self._atoms[atom] = whole
        return self._atoms[atom]

    def _improved(self, atom: Function, whole: Expr) -> Expr:
        """The atom, with simplified arguments, rewritten; ``whole`` if no rule applies."""
        if atom.kind == "max":
            return maximum(*self._undominated(atom.args, 1))
        if atom.kind == "min":
            return minimum(*self._undominated(atom.args, -1))
        numerator, divisor = atom.args
        if atom.kind != "floordiv" or not self._nonnegative(divisor - 1):
            return whole
        quotient = self._constant_quotient(numerator, divisor)
        if quotient is not None:
            return Expr.const(quotient)
        inner = only_floordiv(numerator._polynomial)
        if inner is not None:  # (a//b + r)//c == (a + b*r)//(b*c) for c > 0
            outer = numerator - Expr({(inner,): 1})
            return (inner.args[0] + inner.args[1] * outer) // (inner.args[1] * divisor)
        for factor in _factors(numerator._polynomial, divisor._polynomial):
            reduced = self._reduced(numerator, divisor, factor)
            if reduced is not None:
                return reduced
        return whole

    def _undominated(self, values: tuple[Expr, ...], sign: int) -> list[Expr]:
        kept = list(values)
        for value in values:
            if any(other is not value and self._nonnegative((other - value) * sign) for other in kept):
                kept.remove(value)
        return kept

    def _constant_quotient(self, numerator: Expr, divisor: Expr) -> int | None:
        """k where numerator is in [k*divisor, (k+1)*divisor), for a positive divisor."""
        number = divisor.as_int()
        if number is not None:
            low, high = self._interval(numerator)
            if low is not None and high is not None and low // number == high // number:
                return low // number
        if self._nonnegative(numerator):
            return 0 if self._nonnegative(divisor - 1 - numerator) else None
        return -1 if self._nonnegative(-1 - numerator) and self._nonnegative(numerator + divisor) else None

    def _reduced(self, numerator: Expr, divisor: Expr, factor: Expr) -> Expr | None:
        """(g*a + r)//(g*q) -> (a + r//g)//q for a positive factor g where r//g is a constant."""
        quotient, rest = poly.split(numerator._polynomial, factor._polynomial)
        if not quotient:
            return None
        outer = divisor // factor
        if not self._nonnegative(factor - 1) or not self._nonnegative(outer - 1):
            return None
        carry = self._constant_quotient(Expr(rest), factor)
        return None if carry is None else (Expr(quotient) + carry) // outer

    def _without_exact(self, expr: Expr) -> Expr:
        """q*(n//q) -> n where q divides n."""
        result = expr._polynomial
        floordivs = {atom for monomial in result for atom in monomial if atom.opaque and atom.kind == "floordiv"}
        for atom in sorted(floordivs, key=lambda atom: atom.key) if len(floordivs) > 1 else floordivs:
            numerator, divisor = atom.args
            if not self._exact(numerator, divisor):
                continue
            for monomial, coefficient in list(result.items()):
                rest = poly.divide_monomial(monomial, (atom,))
                exact = None if rest is None else poly.divide_exactly({rest: coefficient}, divisor._polynomial)
                if exact is not None:
                    result = poly.add(result, {monomial: coefficient}, -1)
                    result = poly.add(result, poly.multiply(exact, numerator._polynomial))
        return Expr(result)


def _factors(numerator: Polynomial, divisor: Polynomial) -> Iterator[Expr]:
    """The factors g of the divisor, neither 1 nor the divisor, that it has in common with some term of the numerator.

    For a divisor of several terms, also such a factor times the rest after its common factor is taken out.
    """
    number, monomial = poly.content(divisor), poly.common_monomial(divisor)
    primitive = poly.divide_exactly(divisor, {monomial: number})
    seen: set[Expr] = {Expr.const(1), Expr(divisor)}
    candidates = [
        {poly.common_monomial((term, monomial)): gcd(coefficient, number)} for term, coefficient in numerator.items()
    ]
    if primitive is not None and len(primitive) > 1:
        candidates += [primitive, *(poly.multiply(candidate, primitive) for candidate in candidates)]
    for candidate in candidates:
        factor = Expr(candidate)
        if factor not in seen:
            seen.add(factor)
            yield factor
