"""Between sympy, the exchange form with PyTorch, and our expressions. PyTorch's own functions are known by class name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import sympy

from symshape.prover.condition import Condition
from symshape.prover.expr import Expr, Symbol, ceildiv, maximum, minimum


class UnsupportedExpr(ValueError):
    """A sympy expression that is no integer expression of ours: floats, unknown functions."""


def _floor(args: tuple[Any, ...]) -> Expr:
    numerator, denominator = sympy.fraction(sympy.together(args[0]))
    return from_sympy(numerator) // from_sympy(denominator)


def _ceiling(args: tuple[Any, ...]) -> Expr:
    numerator, denominator = sympy.fraction(sympy.together(args[0]))
    return -((-from_sympy(numerator)) // from_sympy(denominator))


def _power(args: tuple[Any, ...]) -> Expr:
    base, exponent = args
    if not (isinstance(exponent, sympy.Integer) and 0 <= int(exponent) <= 16):
        raise UnsupportedExpr(f"a power with exponent {exponent}")
    return reduce(lambda x, y: x * y, [from_sympy(base)] * int(exponent), Expr.const(1))


def _all(args: tuple[Any, ...]) -> list[Expr]:
    return [from_sympy(a) for a in args]


_FUNCTIONS: dict[str, Callable[[tuple[Any, ...]], Expr]] = {
    "Add": lambda a: reduce(lambda x, y: x + y, _all(a)),
    "Mul": lambda a: reduce(lambda x, y: x * y, _all(a)),
    "Pow": _power,
    "PowByNatural": _power,
    "Mod": lambda a: from_sympy(a[0]) % from_sympy(a[1]),
    "PythonMod": lambda a: from_sympy(a[0]) % from_sympy(a[1]),
    "FloorDiv": lambda a: from_sympy(a[0]) // from_sympy(a[1]),
    "CleanDiv": lambda a: from_sympy(a[0]) // from_sympy(a[1]),
    "CeilDiv": lambda a: ceildiv(from_sympy(a[0]), from_sympy(a[1])),
    "ModularIndexing": lambda a: (from_sympy(a[0]) // from_sympy(a[1])) % from_sympy(a[2]),
    "Max": lambda a: maximum(*_all(a)),
    "Min": lambda a: minimum(*_all(a)),
    "floor": _floor,
    "ceiling": _ceiling,
    "Identity": lambda a: from_sympy(a[0]),
}


@lru_cache(maxsize=1 << 14)
def from_sympy(expr: Any) -> Expr:
    """An integer expression; UnsupportedExpr for anything else."""
    if isinstance(expr, int):
        return Expr.const(expr)
    if isinstance(expr, sympy.Integer):
        return Expr.const(int(expr))
    if isinstance(expr, sympy.Symbol):
        return Expr.symbol(expr.name)
    convert = _FUNCTIONS.get(type(expr).__name__)
    if convert is None:
        raise UnsupportedExpr(f"{type(expr).__name__} in {expr}")
    if type(expr).__name__ == "Mul" and any(isinstance(a, sympy.Rational) and not isinstance(a, sympy.Integer) for a in expr.args):
        raise UnsupportedExpr(f"a fraction in {expr}")
    return convert(expr.args)


_RELATIONS: dict[str, Callable[[Expr, Expr], Condition]] = {
    "Equality": Condition.eq, "Unequality": Condition.ne,
    "GreaterThan": Condition.ge, "LessThan": lambda a, b: Condition.ge(b, a),
    "StrictGreaterThan": lambda a, b: Condition.ge(a, b + 1), "StrictLessThan": lambda a, b: Condition.ge(b, a + 1),
}  # fmt: skip


@lru_cache(maxsize=1 << 12)
def condition_from_sympy(relation: Any) -> Condition:
    """A relation, And, Or, Not, true or false; UnsupportedExpr for anything else."""
    name = type(relation).__name__
    if name in _RELATIONS:
        return _RELATIONS[name](from_sympy(relation.args[0]), from_sympy(relation.args[1]))
    if name == "And":
        return Condition.all_of(*(condition_from_sympy(a) for a in relation.args))
    if name == "Or":
        return Condition.any_of(*(condition_from_sympy(a) for a in relation.args))
    if name == "Not":
        return condition_from_sympy(relation.args[0]).negated()
    if relation in (sympy.true, True):
        return Condition.true()
    if relation in (sympy.false, False):
        return Condition.false()
    raise UnsupportedExpr(f"{name} in {relation}")


def to_sympy(expr: Expr) -> Any:
    """The same expression for sympy; symbols are integers."""
    total = sympy.Integer(0)
    for coefficient, atoms in expr.terms:
        term = sympy.Integer(coefficient)
        for atom in atoms:
            term *= _atom_to_sympy(atom)
        total += term
    return total


def _atom_to_sympy(atom: Any) -> Any:
    if isinstance(atom, Symbol):
        return sympy.Symbol(atom.name, integer=True)
    args = [to_sympy(a) for a in atom.args]
    if atom.kind == "floordiv":
        return sympy.floor(args[0] / args[1])
    return {"mod": sympy.Mod, "max": sympy.Max, "min": sympy.Min}[atom.kind](*args)
