"""Integer size expressions in canonical form.

An `Expr` is a polynomial over atoms: symbols and the opaque functions floordiv, max and min. Equality is equality of
that form. There is no mod atom inside: e % q IS e - q*(e//q), which makes every recombination (q*(e//q) + e%q == e)
plain polynomial arithmetic; `Expr.terms`, which printers and bounds walk, shows it as mod again.

Divisors are assumed to be nonzero. Everything else holds for all integers, with Python's floor semantics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import Any, Final, Literal

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.atoms import Atom, Function, Kind, Symbol, natural_key
from symshape.prover.numbers.polynomial import Monomial, Polynomial

__all__ = [
    "Atom",
    "Expr",
    "Function",
    "Kind",
    "Symbol",
    "Term",
    "as_expr",
    "ceildiv",
    "maximum",
    "minimum",
    "product",
]

_CACHE_SIZE: Final = 1 << 15
Term = tuple[int, tuple[Atom, ...]]


class Expr:
    """An immutable canonical integer expression; hashable, equal to an int when it is that constant."""

    __slots__ = ("_hash", "_polynomial", "_symbols", "_terms", "_text")
    _polynomial: Polynomial
    _hash: int | None
    _symbols: frozenset[str] | None
    _terms: tuple[Term, ...] | None
    _text: str | None

    def __init__(self, polynomial: Polynomial) -> None:
        """Takes ownership of the polynomial (internal; use `const`, `symbol` and the operators)."""
        self._polynomial = polynomial
        self._hash = self._symbols = self._terms = self._text = None

    @staticmethod
    def const(value: int) -> Expr:
        """The constant."""
        return _const(int(value))

    @staticmethod
    def symbol(name: str) -> Expr:
        """The variable of that name."""
        return _symbol(name)

    # Arithmetic.

    def __add__(self, other: Expr | int) -> Expr:
        return Expr(poly.add(self._polynomial, as_expr(other)._polynomial))

    __radd__ = __add__

    def __sub__(self, other: Expr | int) -> Expr:
        return Expr(poly.add(self._polynomial, as_expr(other)._polynomial, -1))

    def __rsub__(self, other: Expr | int) -> Expr:
        return as_expr(other) - self

    def __neg__(self) -> Expr:
        return Expr(poly.scale(self._polynomial, -1))

    def __mul__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return Expr(poly.scale(self._polynomial, other))
        return Expr(poly.multiply(self._polynomial, as_expr(other)._polynomial))

    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        """Floor division; ZeroDivisionError for the divisor 0."""
        return _floordiv(self, as_expr(other))

    def __rfloordiv__(self, other: Expr | int) -> Expr:
        return _floordiv(as_expr(other), self)

    def __mod__(self, other: Expr | int) -> Expr:
        """The rest of floor division (sign of the divisor); ZeroDivisionError for the divisor 0."""
        divisor = as_expr(other)
        return self - divisor * _floordiv(self, divisor)

    def __rmod__(self, other: Expr | int) -> Expr:
        return as_expr(other) % self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self._polynomial == other._polynomial
        return isinstance(other, int) and self.as_int() == other

    def __hash__(self) -> int:
        if self._hash is None:
            value = self.as_int()
            self._hash = hash(frozenset(self._polynomial.items())) if value is None else hash(value)
        return self._hash

    # Queries.

    @property
    def terms(self) -> tuple[Term, ...]:
        """The sum's (coefficient, atoms) in printing order, with e - q*(e//q) shown as the atom mod(e, q)."""
        if self._terms is None:
            from symshape.prover.numbers.modulo import with_mods

            shown = with_mods(self._polynomial)
            self._terms = tuple((shown[monomial], monomial) for monomial in sorted(shown, key=poly.monomial_key))
        return self._terms

    @property
    def atoms(self) -> set[Atom]:
        """The atoms (never mod) of the polynomial, not those inside functions."""
        return {atom for monomial in self._polynomial for atom in monomial}

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in it, also inside functions."""
        if self._symbols is None:
            atoms = self.atoms
            plain = frozenset(atom.name for atom in atoms if isinstance(atom, Symbol))
            self._symbols = plain.union(*(atom.symbols for atom in atoms if isinstance(atom, Function)))
        return self._symbols

    def as_int(self) -> int | None:
        """The value of a constant, else None."""
        if not self._polynomial:
            return 0
        return self._polynomial.get(()) if len(self._polynomial) == 1 else None

    def as_symbol(self) -> str | None:
        """The name of a symbol that stands alone, else None."""
        if len(self._polynomial) != 1:
            return None
        ((monomial, coefficient),) = self._polynomial.items()
        if coefficient != 1 or len(monomial) != 1 or not isinstance(monomial[0], Symbol):
            return None
        return monomial[0].name

    @property
    def monomials(self) -> Iterable[tuple[Monomial, int]]:
        """The sum in its internal form: the atoms (never mod) of each product, and its coefficient."""
        return self._polynomial.items()

    @property
    def constant(self) -> int:
        """The constant term of the sum."""
        return self._polynomial.get((), 0)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value with symbols given by name; KeyError when one is missing, ZeroDivisionError for a divisor 0."""
        total = 0
        for monomial, coefficient in self._polynomial.items():
            for atom in monomial:
                coefficient *= values[atom.name] if isinstance(atom, Symbol) else _evaluate(atom, values)
            total += coefficient
        return total

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Expr:
        """All named symbols replaced at once; ZeroDivisionError when a divisor becomes 0."""
        name = self.as_symbol()
        if name is not None:  # the usual case
            return as_expr(replacements[name]) if name in replacements else self
        if self.symbols.isdisjoint(replacements):
            return self
        return self.map_atoms(lambda atom: _substitute_atom(atom, replacements))

    def map_atoms(self, replace: Callable[[Atom], Expr | None]) -> Expr:
        """Each atom (Symbol or Function, never mod) of the polynomial replaced by `replace(atom)`; None keeps it."""
        cache: dict[Atom, Polynomial] = {}
        total: Polynomial = {}
        for monomial, coefficient in self._polynomial.items():
            part: Polynomial = {(): coefficient}
            for atom in monomial:
                if atom not in cache:
                    replacement = replace(atom)
                    cache[atom] = {(atom,): 1} if replacement is None else replacement._polynomial
                part = poly.multiply(part, cache[atom])
            total = poly.add(total, part)
        return Expr(total)

    def coefficient(self, name: str) -> Expr | None:
        """The factor (free of `name`) of the symbol where the expression is affine in it; 0 when absent, else None."""
        symbol = Symbol(name)
        result: Polynomial = {}
        for monomial, coefficient in self._polynomial.items():
            rest = poly.divide_monomial(monomial, (symbol,))
            if rest is not None:
                result[rest] = coefficient
            others = monomial if rest is None else rest
            if any(atom is symbol or (isinstance(atom, Function) and name in atom.symbols) for atom in others):
                return None
        return Expr(result)

    def exact_quotient(self, divisor: Expr | int) -> Expr | None:
        """self/divisor where the division of polynomials leaves no rest, else None; ZeroDivisionError for 0."""
        divisor = as_expr(divisor)
        if not divisor._polynomial:
            raise ZeroDivisionError(f"{self} / 0")
        quotient = poly.divide_exactly(self._polynomial, divisor._polynomial)
        return None if quotient is None else Expr(quotient)

    def python(self) -> str:
        """Python source with + - * // % max min and few parentheses."""
        if self._text is None:
            from symshape.prover.numbers.text import terms_text

            self._text = terms_text(self.terms)
        return self._text

    def __str__(self) -> str:
        return self.python()

    def __repr__(self) -> str:
        return f"Expr({self.python()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_items, (tuple(self._polynomial.items()),)


def _from_items(items: tuple[tuple[Monomial, int], ...]) -> Expr:
    return Expr(dict(items))


@lru_cache(maxsize=1024)
def _const(value: int) -> Expr:
    return Expr({(): value} if value else {})


@lru_cache(maxsize=4096)
def _symbol(name: str) -> Expr:
    return Expr({(Symbol(name),): 1})


def _atom(kind: Kind, *args: Expr) -> Expr:
    return Expr({(Function(kind, args),): 1})


def _evaluate(function: Function, values: Mapping[str, int]) -> int:
    args = [arg.evaluate(values) for arg in function.args]
    match function.kind:
        case "floordiv":
            return args[0] // args[1]
        case "mod":
            return args[0] % args[1]
        case "max":
            return max(args)
        case "min":
            return min(args)


def _substitute_atom(atom: Atom, replacements: Mapping[str, Expr | int]) -> Expr | None:
    if isinstance(atom, Symbol):
        return as_expr(replacements[atom.name]) if atom.name in replacements else None
    if atom.symbols.isdisjoint(replacements):
        return None
    return atom.rebuild(arg.substitute(replacements) for arg in atom.args)


def as_expr(value: Expr | int) -> Expr:
    """The expression of an int; an Expr is returned as it is. TypeError for anything else (floats)."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, int):
        return _const(int(value))
    raise TypeError(f"an integer or an Expr is needed, not {value!r}")


def expr_of_atom(atom: Atom) -> Expr:
    """The expression that is an atom of another one: a symbol, or a function, simplified."""
    return _symbol(atom.name) if isinstance(atom, Symbol) else atom.rebuild(atom.args)


def ceildiv(left: Expr | int, right: Expr | int) -> Expr:
    """The quotient rounded up, for a positive divisor."""
    return (as_expr(left) + right - 1) // right


def product(values: Iterable[Expr | int]) -> Expr:
    """The product; 1 for none."""
    result = _const(1)
    for value in values:
        result = result * value
    return result


def maximum(*values: Expr | int) -> Expr:
    """The largest of one or more values; ValueError for none."""
    return _extremum("max", tuple(map(as_expr, values)))


def minimum(*values: Expr | int) -> Expr:
    """The smallest of one or more values; ValueError for none."""
    return _extremum("min", tuple(map(as_expr, values)))


@lru_cache(maxsize=_CACHE_SIZE)
def _extremum(kind: Literal["max", "min"], values: tuple[Expr, ...]) -> Expr:
    """max or min in normal form: nested ones flattened; of values that differ by a constant only the extreme one is
    kept."""
    if not values:
        raise ValueError(f"{kind} of nothing")
    flat: list[Expr] = []
    for value in values:
        ((monomial, factor),) = value._polynomial.items() if len(value._polynomial) == 1 else (((), 0),)
        nested = len(monomial) == 1 and factor == 1 and isinstance(monomial[0], Function) and monomial[0].kind == kind
        flat.extend(monomial[0].args if nested else (value,))
    kept: dict[frozenset[tuple[Monomial, int]], Expr] = {}
    for value in flat:
        shape = frozenset(item for item in value._polynomial.items() if item[0])
        other = kept.get(shape)
        difference = 0 if other is None else (value - other).as_int() or 0
        if other is None or (difference > 0) == (kind == "max"):
            kept[shape] = value
    if len(kept) == 1:
        return next(iter(kept.values()))
    return _atom(kind, *sorted(kept.values(), key=lambda value: natural_key(value.python())))


@lru_cache(maxsize=_CACHE_SIZE)
def _floordiv(left: Expr, right: Expr) -> Expr:
    divisor = right._polynomial
    if not divisor:
        raise ZeroDivisionError(f"{left} // 0")
    if divisor[poly.leading(divisor)] < 0:
        return _floordiv(-left, -right)
    if right.as_int() == 1:
        return left
    quotient, rest = poly.split(left._polynomial, divisor)
    if not rest or (right.as_int() is not None and rest.keys() == {()}):
        return Expr(quotient)
    return Expr(poly.add(quotient, _floordiv_rest(rest, divisor)._polynomial))


def _floordiv_rest(rest: Polynomial, divisor: Polynomial) -> Expr:
    """The floor of rest/divisor, where no multiple of the divisor can be split off from the rest."""
    constant = divisor.get(()) if len(divisor) == 1 else None
    monomial = poly.common_monomial((*rest, *divisor))
    if constant is not None:  # floor((4*s + r) / 8) == s//2 for 0 <= r < 4
        varying = {m: c for m, c in rest.items() if m}
        factor = gcd(constant, poly.content(varying))
    else:
        factor = gcd(poly.content(rest), poly.content(divisor))
    if factor > 1 or monomial:
        return _floordiv(_cancel(rest, factor, monomial), _cancel(divisor, factor, monomial))
    if constant is not None:
        inner = only_floordiv(rest)
        if inner is not None:  # (a//b + r)//c == (a + b*r)//(b*c) for c > 0
            numerator, denominator = inner.args
            outer = Expr(poly.add(rest, {(inner,): -1}))
            return _floordiv(numerator + denominator * outer, denominator * constant)
    return _atom("floordiv", Expr(rest), Expr(divisor))


def _cancel(polynomial: Polynomial, factor: int, monomial: Monomial) -> Expr:
    """The polynomial over factor*monomial, the constant rounded down."""
    result: Polynomial = {}
    for term, coefficient in polynomial.items():
        part = poly.divide_monomial(term, monomial)
        if part is not None and coefficient // factor:
            result[part] = coefficient // factor
    return Expr(result)


def only_floordiv(polynomial: Polynomial) -> Function | None:
    """The single a//b in a sum a//b + r for which a + b*r is no more complex: b is constant or r is 0. Else None."""
    found = [
        monomial[0]
        for monomial, coefficient in polynomial.items()
        if coefficient == 1
        and len(monomial) == 1
        and _is_floordiv(monomial[0])
        and (len(polynomial) == 1 or monomial[0].args[1].as_int() is not None)
    ]
    return found[0] if len(found) == 1 else None


def _is_floordiv(atom: Atom) -> bool:
    return isinstance(atom, Function) and atom.kind == "floordiv"


def has_functions(expr: Expr) -> bool:
    """Whether it contains functions (floordiv, mod, max, min), which facts may simplify."""
    return any(isinstance(atom, Function) for monomial in expr._polynomial for atom in monomial)
