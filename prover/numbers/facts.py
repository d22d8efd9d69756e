"""`Facts`: ranges and relations of symbols, and queries about them. Sound: unknown is answered as False or None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import gcd
from typing import Any, Final

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.bounds import Bounds, Range
from symshape.prover.numbers.counterexamples import Conditions, Counterexamples, names_of
from symshape.prover.numbers.expr import Atom, Expr, Function, Symbol, as_expr
from symshape.prover.numbers.intervals import Interval
from symshape.prover.numbers.polynomial import Polynomial
from symshape.prover.numbers.simplify import Simplifier

_ATTEMPTS: Final = (16, 3, 0)  # how many assumed inequalities to try as the first, the second, ... of a proof
_MAX_MULTIPLIERS: Final = 6
_MAX_REDUCTIONS: Final = 16
INT64_MAX: Final = 2**63 - 1  # a bound that says nothing: as far as the numbers of a program go


@dataclass(frozen=True, slots=True)
class Row:
    """The range of a symbol (None: no bound), a positive number that divides it, and a value that it had (None: not
    known) together with those of the other symbols: a question that is false there is not searched for a proof."""

    min: int | None
    max: int | None
    divisor: int = 1
    seen: int | None = None


class Facts:
    """Ranges of symbols and assumed relations.

    Expressions are kept in normal form: a symbol that equals an expression is replaced by it, a symbol known to be a
    multiple of k by k times a symbol named "s0/k". An assumption that contradicts earlier ones is ignored: no
    assignment satisfies all of them, so any answer is right.
    """

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows: dict[str, Row] = {}
        self._sizes: dict[str, Expr] = {}
        self._solved: dict[str, Expr] = {}
        self._parts: dict[str, tuple[str, int]] = {}
        self._zeros: list[Expr] = []
        self._nonnegatives: list[Expr] = []
        self._by_atom: dict[Atom, list[int]] = {}  # atom -> positions of the nonnegatives that it occurs in
        self._indexed = 0  # how many of them are in there
        self._multiples: list[tuple[Expr, Expr]] = []
        self._counterexamples = Counterexamples({name: row.seen for name, row in rows.items() if row.seen is not None})
        self._forget_answers()
        for name, row in rows.items():
            self._rows[name] = replace(row, divisor=1)
        for name, row in rows.items():
            if row.min is not None and row.min == row.max:
                self._solve(name, Expr.const(row.min))
            elif row.divisor > 1:
                self._assume_multiple(Expr.symbol(name), Expr.const(row.divisor))

    def copy(self) -> Facts:
        """Facts that start from these; what is assumed in the copy does not reach the original."""
        child = Facts({})
        child._rows, child._sizes = dict(self._rows), dict(self._sizes)
        child._solved, child._parts = dict(self._solved), dict(self._parts)
        child._zeros, child._nonnegatives = list(self._zeros), list(self._nonnegatives)
        child._multiples, child._counterexamples = list(self._multiples), self._counterexamples.copy()
        return child

    def with_dims(self, sizes: Mapping[str, Expr | int]) -> Facts:
        """A copy for the points of a loop nest: 0 <= d <= size - 1 for each dim, and so size >= 1, and so is each
        factor of a size that is a product."""
        child = self.copy()
        child._sizes.update((name, as_expr(size)) for name, size in sizes.items())
        child._forget_answers()
        for size in sizes.values():
            child.assume_nonnegative(as_expr(size) - 1)
            for factor in _factors(as_expr(size)):
                if child.nonnegative(factor):
                    child.assume_nonnegative(factor - 1)
        return child

    # Assumptions.

    def assume_equal(self, left: Expr | int, right: Expr | int) -> None:
        """left == right from now on."""
        self._assume_zero(as_expr(left) - right)

    def assume_nonnegative(self, expr: Expr | int) -> None:
        """expr >= 0 from now on."""
        known = self._normal(as_expr(expr))
        varying = {monomial: c for monomial, c in known._polynomial.items() if monomial}
        if not varying:
            return
        if _only_symbol(Expr(varying)) is None:
            if self._proven(known):
                return
        elif (low := self._bounds.lower(known)) is not None and low >= 0:
            return  # else it makes a row tighter, which is worth more than to know that it follows from others
        factor = poly.content(varying)
        known = known // factor
        names = known.symbols
        name = next(iter(names))
        slope = known.coefficient(name)
        number = slope.as_int() if slope is not None and len(names) == 1 and name not in self._sizes else None
        if number is None:
            self._nonnegatives.append(known)
            self._forget_answers()
        else:  # the slope is 1 or -1 here
            limit = known.evaluate({name: 0}) * -number
            self._tighten(name, Row(limit, None) if number > 0 else Row(None, limit))

    def _assume_zero(self, expr: Expr) -> None:
        known = self._cancelled(self._normal(expr))
        if known.as_int() is not None:
            return
        if self._assume_remainder_zero(known):
            return
        for name in _names_by_preference(known):
            slope = known.coefficient(name)
            if slope is not None and slope.as_int() in (1, -1):
                self._solve(name, Expr.symbol(name) - known * slope)
                return
        before = len(self._solved)
        for name in sorted(known.symbols):  # 4*s0 == 3*s1: s1 is a multiple of 4
            slope = known.coefficient(name)
            number = None if slope is None else slope.as_int()
            if number:
                self._assume_multiple(known - number * Expr.symbol(name), Expr.const(abs(number)))
            if len(self._solved) > before:
                self._assume_zero(expr)
                return
        if known not in self._zeros:
            self._zeros.append(known)
            self._forget_answers()

    def _assume_remainder_zero(self, known: Expr) -> bool:
        """Takes e % q == 0; False when this is not of that form."""
        if len(known.terms) == 1:
            ((_, atoms),) = known.terms
            if len(atoms) == 1 and isinstance(atoms[0], Function) and atoms[0].kind == "mod":
                self._assume_multiple(*atoms[0].args)
                return True
        return False

    def _assume_multiple(self, base: Expr, divisor: Expr) -> None:
        """Adds the fact that divisor divides base."""
        base, number = self._normal(base), divisor.as_int()
        if number == 0:
            return
        if number is not None:
            rest = poly.modulo(base._polynomial, number)
            factor = gcd(number, *rest.values())
            base, number = Expr({monomial: c // factor for monomial, c in rest.items()}), number // factor
            if number == 1 or not rest:
                return
            symbol = _only_symbol(base)
            if symbol is not None:  # its coefficient has no common factor with the number
                self._solve(symbol, number * self._part(symbol, number))
                return
            divisor = Expr.const(number)
        if (base, divisor) not in self._multiples:
            self._multiples.append((base, divisor))
            self._forget_answers()

    def _part(self, name: str, number: int) -> Expr:
        """The symbol that stands for the named one divided by a number."""
        whole, divisor = self._parts.get(name, (name, 1))
        part = f"{whole}/{divisor * number}"
        self._parts[part] = whole, divisor * number
        return Expr.symbol(part)

    def _solve(self, name: str, value: Expr) -> None:
        """Replaces the symbol by the value everywhere; its range and divisor become facts of the value."""
        low, high = self._range(name)
        for other, expr in self._solved.items():
            self._solved[other] = _substituted(expr, {name: value})
        self._solved[name] = value
        zeros, nonnegatives, multiples = self._zeros, self._nonnegatives, self._multiples
        self._zeros, self._nonnegatives, self._multiples = [], [], []
        self._by_atom, self._indexed = {}, 0
        self._forget_answers()
        for expr in nonnegatives:
            self.assume_nonnegative(expr)
        if low is not None:
            self.assume_nonnegative(value - low)
        if high is not None:
            self.assume_nonnegative(high - value)
        for base, divisor in multiples:
            self._assume_multiple(base, self._normal(divisor))
        for expr in zeros:
            self._assume_zero(expr)

    def _tighten(self, name: str, row: Row) -> None:
        old = self._rows.get(name, Row(None, None))
        low = max((value for value in (old.min, row.min) if value is not None), default=None)
        high = min((value for value in (old.max, row.max) if value is not None), default=None)
        if low is not None and high is not None and low > high:
            return
        self._rows[name] = Row(low, high)
        self._forget_answers()
        if low is not None and low == high:
            self._solve(name, Expr.const(low))

    # Questions.

    def bounds(self, expr: Expr | int) -> Interval:
        """(least, greatest) constant bounds found, None where there is none."""
        known = self._normal(as_expr(expr))
        if known not in self._intervals:
            low, high = self._best_lower(known), self._best_lower(-known)
            self._intervals[known] = low, (None if high is None else -high)
        return self._intervals[known]

    def divides(self, number: int, expr: Expr | int) -> bool:
        """Whether the expression is proven to be a multiple of the number."""
        if number == 0:
            return self.equal(expr, 0)
        return self._divides(abs(number), self._normal(as_expr(expr)))

    def nonnegative(self, expr: Expr | int) -> bool:
        """Whether expr >= 0 is proven."""
        return self._proven(self._normal(as_expr(expr)))

    def less_equal(self, left: Expr | int, right: Expr | int) -> bool:
        """Whether left <= right is proven."""
        return self.nonnegative(as_expr(right) - left)

    def equal(self, left: Expr | int, right: Expr | int) -> bool:
        """Whether left == right is proven."""
        known = self._normal(as_expr(left) - right)
        if known.as_int() is not None:
            return known.as_int() == 0
        if self._zeros and self._reduces_to_zero(known):
            return True
        if self._refuted(known) or self._refuted(-known):  # a model of one side spares the proof of the other
            return False
        return self._proven(known) and self._proven(-known)

    def normal(self, expr: Expr | int) -> Expr:
        """An expression with the same value wherever the facts hold, in as few symbols as the equalities allow.

        A symbol "s0/k" in it is s0 divided by k, where s0 is known to be a multiple of k.
        """
        return self._normal(as_expr(expr))

    def simplify(self, expr: Expr | int) -> Expr:
        """An expression with the same value wherever the facts hold, with equal symbols replaced by one of them."""
        return self._shown(self._simplifier.with_nested_mods(self._normal(as_expr(expr))))

    # The machinery.

    def _forget_answers(self) -> None:
        self._counterexamples.facts_changed()
        self._open_ranges: set[str] = set()  # of dims whose sizes are being simplified
        self._read_open = False  # whether one of these was read since the first was opened
        self._met: set[tuple[Expr, int]] = set()  # questions that came up in their own proof
        self._bounds = Bounds(self._range)
        self._simplifier = Simplifier(self._proven, self._bounds.interval, self._is_exact)
        self._ranges: dict[str, Range] = {}
        self._proofs: dict[tuple[Expr, int], bool | None] = {}  # None while the proof is under way
        self._intervals: dict[Expr, Interval] = {}
        self._divisibles: dict[tuple[int, Expr], bool] = {}
        answers: tuple[dict[Any, Any], ...] = self._proofs, self._divisibles, self._ranges
        self._caches = *answers, *self._bounds.caches, *self._simplifier.caches

    def _normal(self, expr: Expr) -> Expr:
        return self._simplifier.simplify(_substituted(expr, self._solved))

    def _shown(self, expr: Expr) -> Expr:
        """The expression without "s0/k" symbols: such a symbol is s0//k, and g times it is s0//(k/g)."""
        if self._parts.keys().isdisjoint(expr.symbols):
            return expr
        total = Expr.const(0)
        for monomial, coefficient in expr._polynomial.items():
            term = Expr.const(1)
            for atom in monomial:
                if isinstance(atom, Function):
                    term = term * atom.rebuild(self._shown(arg) for arg in atom.args)
                    continue
                whole, divisor = self._parts.get(atom.name, (atom.name, 1))
                factor = gcd(coefficient, divisor)
                coefficient //= factor
                term = term * (Expr.symbol(whole) // (divisor // factor))
            total = total + coefficient * term
        return total

    def _range(self, name: str) -> Range:
        if name in self._open_ranges:
            self._read_open = True
        if name not in self._ranges:
            if name in self._sizes:
                self._ranges[name] = Expr.const(0), None  # while the size itself is being simplified
                before = self._counts()
                self._open_ranges.add(name)
                try:
                    self._ranges[name] = Expr.const(0), self._normal(self._sizes[name] - 1)
                finally:
                    self._open_ranges.discard(name)
                if self._read_open:  # what was found then is of another range
                    self._forget_since(before)
                    self._read_open = bool(self._open_ranges)
            else:
                row = self._rows.get(name, Row(None, None))
                low, high = (None if value is None else Expr.const(value) for value in (row.min, row.max))
                self._ranges[name] = low, high
        return self._ranges[name]

    def _cancelled(self, known: Expr) -> Expr:
        """known == 0 without common factors that are not zero."""
        if known.as_int() is not None:
            return known
        factor: Polynomial = {
            tuple(
                atom
                for atom in poly.common_monomial(known._polynomial)
                if self._proven(Expr({(atom,): 1}) - 1) or self._proven(Expr({(atom,): -1}) - 1)
            ): poly.content(known._polynomial)
        }
        return Expr(poly.divide_exactly(known._polynomial, factor) or known._polynomial)

    def _proven(self, known: Expr, combined: int = 0) -> bool:
        """Whether known >= 0 follows from its bounds, or from the bounds after subtracting multiples of assumed
        nonnegatives."""
        key = known, combined
        if key in self._proofs:
            answer = self._proofs[key]
            if answer is None:
                self._met.add(key)
            return bool(answer)
        before = self._counts()
        self._proofs[key] = None
        try:
            answer = self._search(known, combined)
        finally:
            del self._proofs[key]
        if key in self._met:
            self._met.discard(key)
            if answer:  # what was not proven without it may be now
                self._forget_since(before)
        self._proofs[key] = answer
        return answer

    def _search(self, known: Expr, combined: int) -> bool:
        """``_proven`` without the cache."""
        if self._refuted(known):
            return False
        low = self._bounds.lower(known)
        return (low is not None and low >= 0) or any(
            self._proven(rest, combined + 1) for rest in islice(self._less_assumed(known), _ATTEMPTS[combined])
        )

    def _refuted(self, known: Expr) -> bool:
        """Whether known >= 0 is false at one of the models; not while values would be chosen of ranges that are not
        known yet."""
        return not self._open_ranges and self._counterexamples.refute(known, self._conditions)

    def _counts(self) -> list[int]:
        """The sizes of all caches, to tell new answers from old ones."""
        return [*map(len, self._caches)]

    def _forget_since(self, counts: Sequence[int]) -> None:
        """Drops answers cached since ``counts``, when less was known, except for proofs."""
        for i, (cache, count) in enumerate(zip(self._caches, counts)):
            for key in list(islice(reversed(cache), len(cache) - count)):
                if i > 1 or not cache[key]:
                    del cache[key]

    def _conditions(self) -> Conditions:
        exprs = [*self._nonnegatives, *self._zeros, *(one for pair in self._multiples for one in pair)]
        dims = [name for name in self._sizes if name not in self._solved]
        ends = [end for name in dims for end in self._range(name) if end is not None]
        named = [name for name in (*self._rows, *names_of((*exprs, *ends))) if name not in self._solved]
        names = dict.fromkeys([*(name for name in named if name not in self._sizes), *dims])
        return Conditions(list(names), self._range, self._parts, self._nonnegatives, self._zeros, self._multiples)

    def _best_lower(self, known: Expr) -> int | None:
        lows = [self._bounds.lower(known), *map(self._bounds.lower, islice(self._less_assumed(known), _ATTEMPTS[0]))]
        return max((low for low in lows if low is not None), default=None)

    def _less_assumed(self, known: Expr) -> Iterator[Expr]:
        """The expression minus nonnegative multiples of assumed nonnegatives, each chosen so that a term cancels."""
        terms: dict[Atom, list[tuple[poly.Monomial, int]]] = {}  # by each atom in them
        for term, value in known._polynomial.items():
            for atom in dict.fromkeys(term):
                terms.setdefault(atom, []).append((term, value))
        for assumed in self._sharing_an_atom(known):
            multipliers: set[Expr] = set()
            for monomial, coefficient in assumed._polynomial.items():
                for term, value in terms.get(monomial[0], ()) if monomial else ():
                    rest = poly.divide_monomial(term, monomial)
                    if rest is not None and value // coefficient >= 1:
                        multipliers.add(Expr({rest: value // coefficient}))
            for multiplier in sorted(multipliers, key=str)[:_MAX_MULTIPLIERS]:
                low = self._bounds.lower(multiplier)
                if low is not None and low >= 0:
                    yield known - multiplier * assumed

    def _sharing_an_atom(self, known: Expr) -> list[Expr]:
        """The assumed nonnegatives that can cancel a term, in order."""
        for position in range(self._indexed, len(self._nonnegatives)):
            for atom in self._nonnegatives[position].atoms:
                self._by_atom.setdefault(atom, []).append(position)
        self._indexed = len(self._nonnegatives)
        positions = {position for atom in known.atoms for position in self._by_atom.get(atom, ())}
        return [self._nonnegatives[position] for position in sorted(positions)]

    def _divides(self, number: int, known: Expr) -> bool:
        if (number, known) not in self._divisibles:
            self._divisibles[number, known] = self._is_multiple(number, known)
        return self._divisibles[number, known]

    def _is_multiple(self, number: int, known: Expr) -> bool:
        rest = poly.modulo(known._polynomial, number)
        if not rest or self._simplifier.simplify(Expr(rest) % number) == 0:
            return True
        return self._follows_from_multiples(rest, number)

    def _follows_from_multiples(self, rest: Polynomial, number: int) -> bool:
        for base, divisor in self._multiples:
            multiple = divisor.as_int()
            if multiple is None or multiple % number:
                continue
            if any(not poly.modulo(poly.add(rest, base._polynomial, -c), number) for c in range(1, min(number, 64))):
                return True
        return False

    def _is_exact(self, numerator: Expr, divisor: Expr) -> bool:
        number = divisor.as_int()
        if not self._multiples:
            return False
        if number is None:
            return (numerator, divisor) in self._multiples
        return self._follows_from_multiples(poly.modulo(numerator._polynomial, number), number)

    def _reduces_to_zero(self, known: Expr) -> bool:
        """Whether it is a combination of assumed zeros, as far as dividing by one after the other finds."""
        rest = known._polynomial
        for _ in range(_MAX_REDUCTIONS):
            steps = (poly.reduced(rest, zero._polynomial) for zero in self._zeros)
            step = next((step for step in steps if step is not None), None)
            if step is None:
                return False
            if not step:
                return True
            rest = step
        return False


def _substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Substitutes; the expression unchanged if a divisor would become 0: it then has no value, and any answer is
    right."""
    try:
        return expr.substitute(values)
    except ZeroDivisionError:
        return expr


def _names_by_preference(known: Expr) -> list[str]:
    """The symbols to solve for, best first: of two names the later one is eliminated."""
    return sorted(known.symbols, key=lambda name: Symbol(name).key, reverse=True)


def _factors(size: Expr) -> list[Expr]:
    """The factors of a size that is a product of several atoms; else none."""
    if len(size._polynomial) != 1:
        return []
    (monomial,) = size._polynomial
    return [Expr({(atom,): 1}) for atom in dict.fromkeys(monomial)] if len(monomial) > 1 else []


def _only_symbol(base: Expr) -> str | None:
    """The symbol of a base of the form c*symbol, else None."""
    if len(base._polynomial) != 1:
        return None
    (monomial,) = base._polynomial
    return monomial[0].name if len(monomial) == 1 and isinstance(monomial[0], Symbol) else None
