"""Converts expressions and conditions from and to sympy, PyTorch's form of symbolic sizes.

PyTorch's own sympy classes are matched by class name: this file imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import sympy

from symshape.errors import SymshapeError
from symshape.prover.numbers import condition as conditions
from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Atom, Expr, Symbol, ceildiv, maximum, minimum, product

Names = Callable[[Any], str]
_CACHE_SIZE: Final = 1 << 13
_MAX_POWER: Final = 16
_MOST_RUNS, _MOST_BITS = 4, 62  # of a mask of bits
# Functions of PyTorch's with integer values that do not declare it.
_ON_BITS: Final = frozenset({"BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor", "RShift"})


class UnsupportedExpr(SymshapeError, ValueError):
    """A sympy expression that is not an integer expression of the known functions (floats, Piecewise, ...)."""

    def __init__(self, expr: object, reason: str) -> None:
        super().__init__(f"no integer size expression: {expr} ({reason})")


def from_sympy(expr: Any, names: Names = str) -> Expr:
    """The canonical expression, `names` naming the symbols; UnsupportedExpr when there is none.

    If `names` has a method `opaque`, it names any other integer function (of floats, say), which becomes a symbol.
    """
    try:
        return _convert(sympy.sympify(expr, strict=True), names)
    except sympy.SympifyError as error:
        raise UnsupportedExpr(expr, "not a sympy expression") from error


def condition_from_sympy(relation: Any, names: Names = str) -> Condition:
    """The condition of a relation, And, Or, Not, Implies or truth value; UnsupportedExpr when there is none."""
    match relation:
        case bool() | sympy.logic.boolalg.BooleanAtom():
            return conditions.TRUE if relation else conditions.FALSE
        case sympy.Not():
            return conditions.negation(condition_from_sympy(relation.args[0], names))
        case sympy.And() | sympy.Or():
            operands = [condition_from_sympy(arg, names) for arg in relation.args]
            return (conditions.all_of if isinstance(relation, sympy.And) else conditions.any_of)(*operands)
        case sympy.Implies() | sympy.Equivalent() | sympy.Xor() | sympy.ITE():
            return condition_from_sympy(relation.to_nnf(simplify=False), names)
        case sympy.core.relational.Relational():
            return _comparison(relation, names)
    raise UnsupportedExpr(relation, "not a relation")


def to_sympy(expr: Expr, symbols: Callable[[str], Any] | None = None) -> Any:
    """The sympy expression, floordiv as floor(a/b); `symbols` makes the symbols (default: integer symbols)."""
    make = symbols or (lambda name: sympy.Symbol(name, integer=True))
    return sympy.Add(
        *(sympy.Mul(coefficient, *(_atom_to_sympy(atom, make) for atom in atoms)) for coefficient, atoms in expr.terms)
    )


def condition_to_sympy(condition: Condition, symbols: Callable[[str], Any] | None = None) -> Any:
    """The sympy relation, And, Or or truth value: no negative term on either side of a comparison."""
    match condition.kind:
        case "true" | "false":
            return sympy.true if condition.as_bool() else sympy.false
        case "and" | "or":
            operands = [condition_to_sympy(operand, symbols) for operand in condition.operands]
            return (sympy.And if condition.kind == "and" else sympy.Or)(*operands)
    terms = condition.expr.terms
    left, right = (
        sum((_term(abs(c), atoms) for c, atoms in terms if (c > 0) == side), Expr.const(0)) for side in (True, False)
    )
    relation = {"eq": sympy.Eq, "ne": sympy.Ne, "ge": sympy.Ge}[condition.kind]
    return relation(to_sympy(left, symbols), to_sympy(right, symbols))


def _term(coefficient: int, atoms: tuple[Atom, ...]) -> Expr:
    return product([coefficient, *(Expr({(atom,): 1}) for atom in atoms)])


def _atom_to_sympy(atom: Atom, make: Callable[[str], Any]) -> Any:
    if isinstance(atom, Symbol):
        return make(atom.name)
    args = [to_sympy(arg, make) for arg in atom.args]
    match atom.kind:
        case "floordiv":
            return sympy.floor(args[0] / args[1])
        case "mod":
            return sympy.Mod(*args)
        case "max":
            return sympy.Max(*args)
        case "min":
            return sympy.Min(*args)


def _comparison(relation: Any, names: Names) -> Condition:
    left, right = relation.args
    numerator, denominator = _difference(relation, left, right, names)
    match relation:
        case sympy.Eq():
            return conditions.equals(numerator, 0)
        case sympy.Ne():
            return conditions.differs(numerator, 0)
    number = denominator.as_int()
    if number is None or number <= 0:
        raise UnsupportedExpr(relation, "the sign of a divisor is not known")
    match relation:
        case sympy.Ge():
            return conditions.at_least(numerator, 0)
        case sympy.Gt():
            return conditions.greater(numerator, 0)
        case sympy.Le():
            return conditions.at_least(-numerator, 0)
        case sympy.Lt():
            return conditions.greater(-numerator, 0)
    raise UnsupportedExpr(relation, "an unknown relation")


def _difference(relation: Any, left: Any, right: Any, names: Names) -> tuple[Expr, Expr]:
    for side in (left, right):
        if not isinstance(side, sympy.Expr):
            raise UnsupportedExpr(relation, f"{side} is no number")
        if side in (sympy.oo, -sympy.oo):
            raise UnsupportedExpr(relation, "infinity")
    (a, b), (c, d) = _fraction(left, names), _fraction(right, names)
    return a * d - c * b, b * d


@lru_cache(maxsize=_CACHE_SIZE)
def _convert(expr: Any, names: Names) -> Expr:
    if isinstance(expr, sympy.Integer):
        return Expr.const(int(expr))
    if isinstance(expr, sympy.Symbol):
        if expr.is_integer is False or (expr.is_integer is None and expr.is_real):
            raise UnsupportedExpr(expr, "a symbol that is not an integer")
        return Expr.symbol(names(expr))
    if isinstance(expr, sympy.Add | sympy.Mul | sympy.Pow | sympy.Rational):
        numerator, denominator = _fraction(expr, names)
        if denominator == 1:
            return numerator
        exact = poly.divide_exactly(numerator._polynomial, denominator._polynomial) if denominator != 0 else None
        if exact is None:
            raise UnsupportedExpr(expr, "a fraction")
        return Expr(exact)
    opaque = getattr(names, "opaque", None) if isinstance(expr, sympy.Function) and _is_integer(expr) else None
    rule = _RULES.get(type(expr).__name__)
    try:
        if rule is None:
            raise UnsupportedExpr(expr, f"{type(expr).__name__} is not known")
        return rule(expr.args, names)
    except UnsupportedExpr:
        if opaque is None:
            raise
        return Expr.symbol(opaque(expr))
    except ZeroDivisionError as error:
        raise UnsupportedExpr(expr, "division by zero") from error


def _is_integer(function: Any) -> bool:
    """Whether it has integer values; PyTorch does not declare that for bitwise functions."""
    return bool(function.is_integer) or type(function).__name__ in _ON_BITS


def _fraction(expr: Any, names: Names) -> tuple[Expr, Expr]:
    """(numerator, denominator); the denominator is 1 or the product of all divisors."""
    one = Expr.const(1)
    match expr:
        case sympy.Integer():
            return _convert(expr, names), one
        case sympy.Rational():
            return Expr.const(int(expr.p)), Expr.const(int(expr.q))
        case sympy.Mul():
            parts = [_fraction(arg, names) for arg in expr.args]
            return product(n for n, _ in parts), product(d for _, d in parts)
        case sympy.Add():
            numerator, denominator = Expr.const(0), one
            for arg in expr.args:
                n, d = _fraction(arg, names)
                numerator, denominator = (
                    (numerator + n, d) if d == denominator else (numerator * d + n * denominator, denominator * d)
                )
            return numerator, denominator
        case sympy.Pow():
            base, exponent = expr.args
            if not isinstance(exponent, sympy.Integer) or abs(int(exponent)) > _MAX_POWER:
                raise UnsupportedExpr(expr, "an exponent that is not a small integer")
            n, d = _fraction(base, names)
            up, down = product([n] * abs(int(exponent))), product([d] * abs(int(exponent)))
            return (up, down) if exponent > 0 else (down, up)
    if type(expr).__name__ == "IntTrueDiv":
        (a, b), (c, d) = (_fraction(arg, names) for arg in expr.args)
        return a * d, b * c
    return _convert(expr, names), one


# The functions, by class name. Each rule takes (arguments, names).

Rule = Callable[[tuple[Any, ...], Names], Expr]


def _floor(args: tuple[Any, ...], names: Names) -> Expr:
    numerator, denominator = _fraction(args[0], names)
    return numerator // denominator


def _ceiling(args: tuple[Any, ...], names: Names) -> Expr:
    numerator, denominator = _fraction(args[0], names)
    if (denominator.as_int() or 0) > 0 or sympy.denom(args[0]).is_positive:
        return ceildiv(numerator, denominator)
    return -(-numerator // denominator)


def _truncation(args: tuple[Any, ...], names: Names) -> Expr:
    """Truncation toward zero: the floor of a nonnegative value. True division of ints is exact below 2**53, as sizes
    are."""
    numerator, denominator = _fraction(args[0], names)
    if denominator == 1:
        return numerator
    if type(args[0]).__name__ == "IntTrueDiv":
        nonnegative = args[0].args[0].is_nonnegative and args[0].args[1].is_positive
    else:
        nonnegative = args[0].is_nonnegative
    if not nonnegative:
        raise UnsupportedExpr(args[0], "truncated, and not known to be nonnegative")
    return numerator // denominator


def _power(args: tuple[Any, ...], names: Names) -> Expr:
    base, exponent = (_convert(arg, names) for arg in args)
    number = exponent.as_int()
    if number is None or not 0 <= number <= _MAX_POWER:
        raise UnsupportedExpr(args[1], "an exponent that is not a small natural number")
    return product([base] * number)


def _shifted_left(args: tuple[Any, ...], names: Names) -> Expr:
    base, shift = (_convert(arg, names) for arg in args)
    number = shift.as_int()
    if number is None or not 0 <= number < 64:
        raise UnsupportedExpr(args[1], "a shift that is not a small natural number")
    return base * (1 << number)


def _bits_in_common(x: Expr, y: Expr) -> Expr:
    """``x & y`` where one is a constant: for each run of ones in it, the bits of the other below the run's end minus
    those below its start.

    Remainders of floor division are bits in two's complement, for negative numbers too.
    """
    mask = y.as_int()
    if mask is None:
        x, mask = y, x.as_int()
    if mask is None:
        raise UnsupportedExpr(x, "a mask of bits that is no number")
    if mask < 0:
        return x - _bits_in_common(x, Expr.const(~mask))
    runs = [run.span() for run in re.finditer("1+", bin(mask)[:1:-1])]  # from the lowest bit on
    if len(runs) > _MOST_RUNS or mask.bit_length() > _MOST_BITS:
        raise UnsupportedExpr(mask, "a mask with many runs of ones, or with more bits than sizes have")
    return sum((x % (1 << end) - x % (1 << start) for start, end in runs), Expr.const(0))


def _of_integers(build: Callable[..., Expr]) -> Rule:
    return lambda args, names: build(*(_convert(arg, names) for arg in args))


_RULES: Final[Mapping[str, Rule]] = {
    "BitwiseFn_bitwise_and": _of_integers(_bits_in_common),
    "BitwiseFn_bitwise_or": _of_integers(lambda a, b: a + b - _bits_in_common(a, b)),
    "BitwiseFn_bitwise_xor": _of_integers(lambda a, b: a + b - 2 * _bits_in_common(a, b)),
    "Abs": _of_integers(lambda a: maximum(a, -a)),
    "CeilDiv": _of_integers(ceildiv),
    "CeilToInt": _ceiling,
    "CleanDiv": _of_integers(lambda a, b: a // b),
    "FloorDiv": _of_integers(lambda a, b: a // b),
    "FloorToInt": _floor,
    "Identity": _of_integers(lambda a: a),
    "LShift": _shifted_left,
    "Max": _of_integers(maximum),
    "Min": _of_integers(minimum),
    "Mod": _of_integers(lambda a, b: a % b),
    "ModularIndexing": _of_integers(lambda a, b, c: (a // b) % c),
    "PowByNatural": _power,
    "PythonMod": _of_integers(lambda a, b: a % b),
    "TruncToInt": _truncation,
    "ceiling": _ceiling,
    "floor": _floor,
}
