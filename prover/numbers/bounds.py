"""Constant bounds of expressions, from ranges of their symbols.

A lower bound is found by eliminating one atom after the other: where the sum is monotone in an atom, the atom is put at
the end of its range, which may itself be an expression (a loop dim d1 ends at s1 - 1). That keeps correlations, which
plain interval arithmetic loses: d0*s1 + d1 < s0*s1 needs them. Interval arithmetic is the fallback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import gcd
from typing import Any, Final

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.expr import Atom, Expr, Function, Symbol
from symshape.prover.numbers.intervals import (
    Interval,
    interval_product,
    interval_quotient,
    interval_remainder,
    is_empty,
)
from symshape.prover.numbers.polynomial import Polynomial

# The least and the greatest value of a symbol, None where there is no bound.
Range = tuple[Expr | None, Expr | None]

_FUEL: Final = 100
_MAX_DEPTH: Final = 24
_MOST_SHARED: Final = 1 << 16  # a key is some hundred bytes, and most expressions are kept by others anyway

_UNKNOWN: Any = object()

# An expression, and the ranges of all symbols that its bounds depend on, by name.
Question = tuple[Expr, tuple[tuple[str, Expr | None, Expr | None], ...]]
# Lower bounds, whatever facts they were found for. The facts of two passes over a function, or of two kernels of a
# graph, are made anew, and mostly ask the same of the same ranges.
_SHARED: dict[Question, int | None] = {}


class Bounds:
    """Bounds under one fixed set of ranges, cached. None means that no bound was found."""

    def __init__(self, range_of: Callable[[str], Range]) -> None:
        self._range_of = range_of
        self._lower: dict[Expr, int | None] = {}
        self._constant: dict[Atom, bool] = {}
        self._intervals: dict[Atom, Interval] = {}  # those whose ends are in `_lower`: they will be the same again
        self._open: set[Expr] = set()
        self._fuel = 0

    @property
    def caches(self) -> tuple[dict[Any, Any], ...]:
        """The cached bounds, in the order in which they were found."""
        return self._lower, self._constant, self._intervals

    def lower(self, expr: Expr) -> int | None:
        """A lower bound of the expression."""
        value = expr.as_int()
        if value is not None:
            return value
        found: int | None = self._lower.get(expr, _UNKNOWN)
        if found is not _UNKNOWN:
            return found
        question = expr, tuple((name, *self._range_of(name)) for name in sorted(self._tied(expr.atoms)))
        found = _SHARED.get(question, _UNKNOWN)
        if found is not _UNKNOWN:
            self._lower[expr] = found
            return found
        if not self._open:
            self._fuel = _FUEL
        self._fuel -= 1
        if self._fuel < 0 or len(self._open) > _MAX_DEPTH or expr in self._open:
            return None
        self._open.add(expr)
        try:
            rest, ends = self._without_independent({atoms: coefficient for coefficient, atoms in expr.terms})
            result = None if ends is None else self._naive(rest)
            if ends is not None and not self._is_independent(rest):
                result = _largest(result, self._eliminate(rest))
            result = None if result is None or ends is None else result + ends
        finally:
            self._open.discard(expr)
        if self._fuel >= 0 or not self._open:
            if len(_SHARED) >= _MOST_SHARED:
                forget_shared_bounds()
            self._lower[expr] = _SHARED[question] = result
        return result

    def upper(self, expr: Expr) -> int | None:
        """An upper bound of the expression."""
        return _negated(self.lower(-expr))

    def interval(self, expr: Expr) -> Interval:
        """Both bounds."""
        return self.lower(expr), self.upper(expr)

    def _without_independent(self, shown: Polynomial) -> tuple[Polynomial, int | None]:
        """The sum without its terms c*s where s has constant bounds and occurs in no other term and no other range, and
        the minimum of those terms. Exact, and a sum of many symbols then needs no search for an order."""
        atoms = [atom for monomial in shown for atom in monomial]
        tied = self._tied({atom for atom in atoms if not self._has_constant_ends(atom)})
        often = {atom for atom, times in Counter(atoms).items() if times > 1}
        rest: Polynomial = {}
        total = 0
        for monomial, coefficient in shown.items():
            atom = monomial[0] if len(monomial) == 1 else None
            if not isinstance(atom, Symbol) or atom in often or atom.name in tied:
                rest[monomial] = coefficient
                continue
            end = self._range_of(atom.name)[0 if coefficient > 0 else 1]
            if end is None:
                return rest, None
            total += coefficient * (end.as_int() or 0)
        return rest, total

    def _has_constant_ends(self, atom: Atom) -> bool:
        if atom not in self._constant:
            ends = self._range_of(atom.name) if isinstance(atom, Symbol) else (Expr({(atom,): 1}),)
            self._constant[atom] = all(end is None or end.as_int() is not None for end in ends)
        return self._constant[atom]

    def _tied(self, atoms: set[Atom]) -> set[str]:
        """The names of all symbols in functions and in bounds of ranges, and transitively of those in the bounds of
        their ranges."""
        names: set[str] = set()
        todo = [name for atom in atoms for name in (atom.symbols if isinstance(atom, Function) else (atom.name,))]
        while todo:
            name = todo.pop()
            if name not in names:
                names.add(name)
                todo += [symbol for end in self._range_of(name) if end is not None for symbol in end.symbols]
        return names

    # Interval arithmetic.

    def _naive(self, shown: Polynomial) -> int | None:
        total = 0
        for monomial, coefficient in shown.items():
            interval: Interval = (coefficient, coefficient)
            for atom in monomial:
                interval = interval_product(interval, self._atom_interval(atom))
            if interval[0] is None:
                return None
            total += interval[0]
        return total

    def _is_independent(self, shown: Polynomial) -> bool:
        """Whether interval arithmetic is exact: each atom is a symbol with constant ends and occurs once."""
        atoms = [atom for monomial in shown for atom in monomial]
        return len(set(atoms)) == len(atoms) and all(self._elimination_key(atom)[0] == 2 for atom in atoms)

    def _atom_interval(self, atom: Atom) -> Interval:
        found = self._intervals.get(atom)
        if found is None:
            found = self._found_interval(atom)
            if self._is_kept(atom):
                self._intervals[atom] = found
        return found

    def _is_kept(self, atom: Atom) -> bool:
        """Whether all bounds that the interval of an atom is made of are cached: none was given up for want of fuel."""
        if isinstance(atom, Symbol):
            low, high = self._range_of(atom.name)
            asked = [*(() if low is None else (low,)), *(() if high is None else (-high,))]
        else:
            asked = [one for arg in atom.args for one in (arg, -arg)]
        return all(one in self._lower or one.as_int() is not None for one in asked)

    def _found_interval(self, atom: Atom) -> Interval:
        if isinstance(atom, Symbol):
            low, high = self._range_of(atom.name)
            return (None if low is None else self.lower(low)), (None if high is None else self.upper(high))
        if atom.kind in ("max", "min"):
            lows, highs = zip(*map(self.interval, atom.args), strict=True)
            return (_largest(*lows), _all(max, highs)) if atom.kind == "max" else (_all(min, lows), _smallest(*highs))
        base, divisor = self.interval(atom.args[0]), self.interval(atom.args[1])
        if divisor[0] is None or divisor[0] < 1 or is_empty(divisor):
            return None, None
        return interval_remainder(base, divisor) if atom.kind == "mod" else interval_quotient(base, divisor)

    # Elimination.

    def _eliminate(self, shown: Polynomial) -> int | None:
        atoms = sorted({atom for monomial in shown for atom in monomial}, key=self._elimination_key)
        for atom in atoms:
            powers = _by_power(shown, atom)
            found = self._without(atom, powers)
            if found is not None or self._is_exact(atom, powers, atoms):
                return found
        return None

    def _is_exact(self, atom: Atom, powers: dict[int, Polynomial], atoms: list[Atom]) -> bool:
        """Whether the sum is minimal where this atom is at its bound, whatever the others are: then no other order
        finds more. This holds for a symbol that is in one term, with a number, and that no other atom depends on."""
        if not isinstance(atom, Symbol) or powers.keys() != {0, 1} or powers[1].keys() != {()}:
            return False
        others = {other for other in atoms if other is not atom and not self._has_constant_ends(other)}
        return atom.name not in self._tied(others)

    def _elimination_key(self, atom: Atom) -> tuple[int, tuple[object, ...]]:
        """The order of elimination: functions, then symbols with a symbolic bound, then those with constant bounds."""
        if isinstance(atom, Function):
            return 0, atom.key
        high = self._range_of(atom.name)[1]
        return (2 if high is None or high.as_int() is not None else 1), atom.key

    def _without(self, atom: Atom, powers: dict[int, Polynomial]) -> int | None:
        """The lower bound of the sum of powers[k] * atom**k, found by replacing the atom."""
        sign = self._sign(atom, powers)
        if isinstance(atom, Function) and atom.kind in ("max", "min"):
            bounds = [self.lower(_replaced(powers, arg)) for arg in atom.args]
            # One argument is enough where the sum is monotone; not for squares, it could be negative and far off.
            any_will_do = sign == (1 if atom.kind == "max" else -1) and max(powers) == 1
            return _largest(*bounds) if any_will_do else _all(min, bounds)
        results = [self.lower(_replaced(powers, end)) for end in self._ends(atom, sign)]
        if isinstance(atom, Function) and atom.kind == "floordiv" and powers.keys() <= {0, 1}:
            results.append(self._multiplied(atom, powers))
        return _largest(*results)

    def _sign(self, atom: Atom, powers: dict[int, Polynomial]) -> int:
        """1 if the sum is increasing in the atom, -1 if it is decreasing, 0 if neither is known."""
        if max(powers) > 1 and not _at_least(self._atom_interval(atom)[0], 0):
            return 0
        if powers.keys() <= {0, 1} and powers[1].keys() == {()}:  # the usual case
            return 1 if powers[1][()] > 0 else -1
        factors = [Expr(factor) for power, factor in powers.items() if power]
        if all(_at_least(self.lower(factor), 0) for factor in factors):
            return 1
        return -1 if all(_at_most(self.upper(factor), 0) for factor in factors) else 0

    def _ends(self, atom: Atom, sign: int) -> list[Expr]:
        """Expressions that are lower (sign 1) or upper (sign -1) bounds of the atom; each is valid by itself."""
        if sign == 0:
            return []
        if isinstance(atom, Symbol):
            end = self._range_of(atom.name)[0 if sign > 0 else 1]
            return [] if end is None else [end]
        constant = self._atom_interval(atom)[0 if sign > 0 else 1]
        ends = [] if constant is None else [Expr.const(constant)]
        if atom.kind == "mod" and sign < 0 and _at_least(self.lower(atom.args[1]), 1):
            ends.append(atom.args[1] - 1)
            if _at_least(self.lower(atom.args[0]), 0):
                ends.append(atom.args[0])
        return ends

    def _multiplied(self, atom: Function, powers: dict[int, Polynomial]) -> int | None:
        """For rest + k*(n//q): from the bound of q*(rest + k*(n//q)) == q*rest + k*(n - n%q), no common factors."""
        numerator, divisor = atom.args
        if not _at_least(self.lower(divisor), 1):
            return None
        factor, q = Expr(powers[1]), divisor
        common = poly.common_monomial((*factor._polynomial, *q._polynomial))
        number = gcd(poly.content(factor._polynomial), poly.content(q._polynomial))
        common_factor = Expr({common: number})
        if not _at_least(self.lower(common_factor), 1):
            common_factor = Expr.const(1)
        reduced = q // common_factor
        remainder = Expr({(Function("mod", (numerator, divisor)),): 1})
        scaled = self.lower(reduced * Expr(powers.get(0, {})) + factor // common_factor * (numerator - remainder))
        if scaled is None:
            return None
        least, greatest = self.interval(reduced)
        if is_empty((max(least or 1, 1), greatest)):
            return None
        if scaled < 0:
            return -(-scaled // max(least or 1, 1))
        return -(-scaled // greatest) if greatest is not None else int(scaled > 0)


def forget_shared_bounds() -> None:
    """Bounds are found anew for facts that are made from now on."""
    _SHARED.clear()


def _by_power(shown: Polynomial, atom: Atom) -> dict[int, Polynomial]:
    powers: dict[int, Polynomial] = {}
    for monomial, coefficient in shown.items():
        rest = tuple(other for other in monomial if other is not atom) if atom in monomial else monomial
        powers.setdefault(len(monomial) - len(rest), {})[rest] = coefficient
    return powers


def _replaced(powers: dict[int, Polynomial], value: Expr) -> Expr:
    total, power_value = Expr(powers.get(0, {})), value
    for power in range(1, max(powers) + 1):
        if power > 1:
            power_value = power_value * value
        if power in powers:
            total = total + Expr(powers[power]) * power_value
    return total


def _negated(value: int | None) -> int | None:
    return None if value is None else -value


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _smallest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _all(choose: Callable[[list[int]], int], values: list[int | None] | tuple[int | None, ...]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if len(known) == len(values) else None


def _at_least(value: int | None, limit: int) -> bool:
    return value is not None and value >= limit


def _at_most(value: int | None, limit: int) -> bool:
    return value is not None and value <= limit
