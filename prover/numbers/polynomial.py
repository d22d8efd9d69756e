"""Sparse integer polynomials over hashable, ordered atoms, on which `Expr` is built.

A polynomial is a dict from monomial (a sorted tuple of atoms, repeated for powers) to its nonzero coefficient; the
empty monomial is the constant. Dicts given to these functions are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from operator import attrgetter
from typing import Any

Monomial = tuple[Any, ...]
Polynomial = dict[Monomial, int]

_atom_key = attrgetter("key")


def monomial_key(monomial: Monomial) -> tuple[Any, ...]:
    """The term order: higher degree first, then by atoms; the constant comes last."""
    return (-len(monomial), *map(_atom_key, monomial))


def add(left: Polynomial, right: Polynomial, factor: int = 1) -> Polynomial:
    """left + factor*right."""
    result = dict(left)
    for monomial, coefficient in right.items():
        total = result.get(monomial, 0) + factor * coefficient
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def multiply_monomials(left: Monomial, right: Monomial) -> Monomial:
    """The product, sorted."""
    if not left:
        return right
    if not right:
        return left
    return tuple(sorted(left + right, key=_atom_key))


def scale(polynomial: Polynomial, coefficient: int, monomial: Monomial = ()) -> Polynomial:
    """coefficient*monomial*polynomial."""
    if coefficient == 0:
        return {}
    if not monomial:
        return {m: coefficient * c for m, c in polynomial.items()}
    return {multiply_monomials(m, monomial): coefficient * c for m, c in polynomial.items()}


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """left*right."""
    if len(left) == 1:
        ((monomial, coefficient),) = left.items()
        return scale(right, coefficient, monomial)
    if len(right) == 1:
        ((monomial, coefficient),) = right.items()
        return scale(left, coefficient, monomial)
    result: Polynomial = {}
    for monomial, coefficient in left.items():
        result = add(result, scale(right, coefficient, monomial))
    return result


def divide_monomial(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial without the divisor's atoms; None when one is missing."""
    if not divisor:
        return monomial
    if len(divisor) > len(monomial):
        return None
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def leading(polynomial: Polynomial) -> Monomial:
    """The first monomial in the term order."""
    return min(polynomial, key=monomial_key)


def divide_exactly(polynomial: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """The quotient when the divisor divides the polynomial without rest, else None."""
    lead = leading(divisor)
    lead_coefficient = divisor[lead]
    quotient: Polynomial = {}
    rest = polynomial
    while rest:
        monomial = leading(rest)
        part = divide_monomial(monomial, lead)
        if part is None or rest[monomial] % lead_coefficient:
            return None
        coefficient = rest[monomial] // lead_coefficient
        quotient[part] = coefficient
        rest = add(rest, scale(divisor, coefficient, part), -1)
    return quotient


def content(polynomial: Polynomial) -> int:
    """The greatest common divisor of the coefficients (0 for the zero polynomial)."""
    return gcd(*polynomial.values())


def common_monomial(monomials: Iterable[Monomial]) -> Monomial:
    """The greatest monomial that divides each of the given ones."""
    iterator = iter(monomials)
    common = list(next(iterator, ()))
    for monomial in iterator:
        if not common:
            break
        rest, kept = list(monomial), []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        common = kept
    return tuple(common)


def split(polynomial: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(quotient, rest) with polynomial == quotient*divisor + rest, the rest having no more terms than the polynomial.

    For a constant divisor k > 0 the rest's constant is in [0, k).
    """
    if len(divisor) > 1:
        exact = divide_exactly(polynomial, divisor)
        return (exact, {}) if exact is not None else _split_greedily(polynomial, divisor)
    ((monomial, coefficient),) = divisor.items()
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for term, value in polynomial.items():
        part = divide_monomial(term, monomial)
        if part is None:
            rest[term] = value
            continue
        if not term:
            whole, left = divmod(value, coefficient)
        elif any(atom.opaque for atom in term):  # s - 6*(s//6) over 4 must stay (s%6)//4
            whole, left = (0, value) if value % coefficient else (value // coefficient, 0)
        else:
            whole = abs(value) // coefficient if value > 0 else -(abs(value) // coefficient)
            left = value - whole * coefficient
        if whole:
            quotient[part] = whole
        if left:
            rest[term] = left
    return quotient, rest


def _split_greedily(polynomial: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Splits off multiples of a divisor of several terms as long as each makes the rest shorter."""
    lead = leading(divisor)
    quotient: Polynomial = {}
    rest = polynomial
    for term in sorted(polynomial, key=monomial_key):
        part = divide_monomial(term, lead)
        if part is None or rest.get(term, 0) % divisor[lead]:
            continue
        whole = rest.get(term, 0) // divisor[lead]
        shorter = add(rest, scale(divisor, whole, part), -1)
        if len(shorter) < len(rest):
            quotient, rest = add(quotient, {part: whole}), shorter
    return quotient, rest


def modulo(polynomial: Polynomial, number: int) -> Polynomial:
    """The coefficients reduced to [0, number)."""
    return {monomial: c % number for monomial, c in polynomial.items() if c % number}


def reduced(polynomial: Polynomial, zero: Polynomial) -> Polynomial | None:
    """A nonzero multiple of the polynomial without a term that the zero's leading term divides; or None."""
    lead = leading(zero)
    for monomial, coefficient in polynomial.items():
        rest = divide_monomial(monomial, lead)
        if rest is not None:
            return add(scale(polynomial, zero[lead]), scale(zero, coefficient, rest), -1)
    return None
