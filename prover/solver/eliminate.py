"""Eliminates a symbol by solving an equation for it."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from symshape.prover.numbers.atoms import Function, Symbol
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr


class Solution(NamedTuple):
    """name == value wherever the equation holds, for all integer values of the symbols in ``value``."""

    name: str
    value: Expr


def solution(condition: Condition) -> Solution | None:
    """The later symbol of x == a*y + ... + c, or x of (a*x + c) % k == r; None for any other form.

    The second is x == k*q + r' with a fresh symbol q, which is the floor of x/k and is called "x//k".
    """
    if condition.kind != "eq":
        return None
    return _of_sum(condition.expr) or _of_remainder(condition.expr)


def _of_sum(expr: Expr) -> Solution | None:
    if any(len(monomial) > 1 for monomial in expr._polynomial) or not all(isinstance(a, Symbol) for a in expr.atoms):
        return None
    units = [a for a in expr.atoms if isinstance(a, Symbol) and abs(expr._polynomial[(a,)]) == 1]
    if not units:
        return None
    last = max(units, key=lambda symbol: symbol.key)
    sign = expr._polynomial[(last,)]
    return Solution(last.name, Expr({(last,): 1}) - expr * sign)


def _of_remainder(expr: Expr) -> Solution | None:
    varying = [(coefficient, atoms) for coefficient, atoms in expr.terms if atoms]
    if len(varying) != 1 or len(varying[0][1]) != 1 or abs(varying[0][0]) != 1:
        return None
    (atom,) = varying[0][1]
    if not isinstance(atom, Function) or atom.kind != "mod":
        return None
    base, modulus = atom.args[0], atom.args[1].as_int()
    # Not the polynomial's constant, a part of which may be in the base of the remainder.
    constant = sum(coefficient for coefficient, atoms in expr.terms if not atoms)
    rest = -constant * varying[0][0]
    linear = {monomial: c for monomial, c in base._polynomial.items() if monomial}
    if modulus is None or modulus < 2 or not 0 <= rest < modulus or len(linear) != 1:
        return None
    ((monomial, factor),) = linear.items()
    symbol = monomial[0]
    if len(monomial) != 1 or not isinstance(symbol, Symbol) or gcd(factor, modulus) != 1:
        return None
    # factor*x + constant == rest modulo modulus
    start = (rest - base.constant) * pow(factor, -1, modulus) % modulus
    name = symbol.name
    return Solution(name, modulus * Expr.symbol(f"{name}//{modulus}") + start)
