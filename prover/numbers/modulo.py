"""Recognises ``e - q*(e//q)`` in a polynomial and writes it as ``e % q``."""

from __future__ import annotations

from collections.abc import Iterator

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.expr import Expr, Function
from symshape.prover.numbers.polynomial import Polynomial


def with_mods(polynomial: Polynomial) -> Polynomial:
    """The same sum with mod atoms for the remainders in it; the polynomial itself if it has none."""
    floordivs = [
        atom
        for atom in {atom for monomial in polynomial for atom in monomial}
        if isinstance(atom, Function) and atom.kind == "floordiv"
    ]
    for floordiv in sorted(floordivs, key=lambda atom: (-atom.depth, atom.key)):  # outer ones hold the inner as terms
        for base, divisor in _readings(floordiv, floordivs):
            polynomial = _extract(polynomial, floordiv, base, divisor)
    return polynomial


def _readings(floordiv: Function, others: list[Function]) -> Iterator[tuple[Expr, Expr]]:
    """The (e, q) among the candidates for which the atom is e//q: its own arguments, and those of a nested floordiv."""
    numerator, denominator = floordiv.args
    for other in others:
        if other is floordiv:
            continue
        quotient = poly.divide_exactly(denominator._polynomial, other.args[1]._polynomial)
        if quotient is None:
            continue
        base, divisor = Expr({(other,): 1}), Expr(quotient)
        if (base // divisor)._polynomial == {(floordiv,): 1}:
            yield base, divisor
    yield numerator, denominator


def _extract(polynomial: Polynomial, floordiv: Function, base: Expr, divisor: Expr) -> Polynomial:
    """Replaces c*base - c*divisor*floordiv by c*mod(base, divisor) for every monomial c for which both terms are
    present."""
    cofactor: Polynomial = {}
    for monomial, coefficient in polynomial.items():
        if monomial.count(floordiv) == 1:
            cofactor[tuple(atom for atom in monomial if atom is not floordiv)] = -coefficient
    mod = Function("mod", (base, divisor))
    for monomial, coefficient in _factors(cofactor, divisor._polynomial).items():
        wanted = poly.scale(base._polynomial, coefficient, monomial)
        if not _contains(polynomial, wanted, monomial):
            continue
        quotient = poly.scale(divisor._polynomial, coefficient, poly.multiply_monomials(monomial, (floordiv,)))
        rest = poly.add(poly.add(polynomial, wanted, -1), quotient)
        polynomial = poly.add(rest, {poly.multiply_monomials(monomial, (mod,)): coefficient})
    return polynomial


def _factors(cofactor: Polynomial, divisor: Polynomial) -> Polynomial:
    """The terms c for which c*divisor is the cofactor, or a part of it if the divisor is one term."""
    if not cofactor or len(divisor) > 1:
        return (poly.divide_exactly(cofactor, divisor) or {}) if cofactor else {}
    result: Polynomial = {}
    for monomial, coefficient in cofactor.items():
        exact = poly.divide_exactly({monomial: coefficient}, divisor)
        result.update(exact or {})
    return result


def _contains(polynomial: Polynomial, wanted: Polynomial, constant: poly.Monomial) -> bool:
    """Whether all wanted terms are in the polynomial. The constant of the base may be missing: adding it costs
    little."""
    for monomial, coefficient in wanted.items():
        if monomial == constant and len(wanted) > 1:
            continue
        found = polynomial.get(monomial, 0)
        if found * coefficient <= 0 or abs(found) < abs(coefficient):
            return False
    return True
