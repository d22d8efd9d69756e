"""Encodes conditions as integer linear rows over fresh variables for isl, and lists the products.

Every symbol, opaque function and product of two becomes a variable:

    q = a // k    k*q <= a <= k*q + k - 1                       exact, for a number k > 0
    q = a // b    p <= a <= p + b - 1, p = q*b, b >= 1          or p + b + 1 <= a <= p, b <= -1
    m = max(a, b) m >= a, m >= b, and one of m <= a, m <= b
    m = x*y       listed in `products`; `envelopes` and `search` deal with it

A function is determined by its arguments, so that making it a variable changes no answer: the rows have a solution
exactly where the conditions have one, once the products are right. Divisors are taken to be nonzero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from symshape.prover.numbers.atoms import Atom, Function, Symbol
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.polynomial import Monomial

Terms = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A linear constraint: the sum of coefficient * variable over `terms`, plus `constant`, is 0 (`equal`) or at least
    0."""

    terms: Terms
    constant: int
    equal: bool = False

    def value(self, point: list[int]) -> int:
        """The value of the sum at a point."""
        return self.constant + sum(coefficient * point[variable] for variable, coefficient in self.terms)

    def holds(self, point: list[int]) -> bool:
        """Whether the constraint holds at a point."""
        value = self.value(point)
        return value == 0 if self.equal else value >= 0


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All of the rows, and one alternative of each clause."""

    rows: tuple[Row, ...] = ()
    clauses: tuple[Clause, ...] = ()

    def holds(self, point: list[int]) -> bool:
        """Whether it holds at a point."""
        return all(row.holds(point) for row in self.rows) and all(
            any(alternative.holds(point) for alternative in clause) for clause in self.clauses
        )


Clause = tuple[Conjunction, ...]
_NEVER: Final = Conjunction((Row((), -1),))


class Linear(dict[int, int]):
    """A linear expression under construction: coefficients by variable, and a constant."""

    constant = 0

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor*other."""
        result = Linear(self)
        result.constant = self.constant + factor * other.constant
        for variable, coefficient in other.items():
            total = result.get(variable, 0) + factor * coefficient
            if total:
                result[variable] = total
            else:
                result.pop(variable, None)
        return result

    def row(self, shift: int = 0, sign: int = 1, *, equal: bool = False) -> Row:
        """sign*self + shift >= 0, or == 0."""
        terms = tuple((variable, sign * coefficient) for variable, coefficient in self.items())
        return Row(terms, sign * self.constant + shift, equal)


@dataclass
class Problem:
    """Rows, clauses and products over numbered variables, to which `add` adds conditions."""

    rows: list[Row] = field(default_factory=list)
    clauses: list[Clause] = field(default_factory=list)
    products: dict[tuple[int, int], int] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    size: int = 0
    _functions: dict[Atom, int] = field(default_factory=dict)

    def add(self, conditions: Iterable[Condition]) -> None:
        """Adds conditions, all of which must hold."""
        for condition in conditions:
            part = self._conjunction(condition)
            self.rows += part.rows
            self.clauses += part.clauses

    def _conjunction(self, condition: Condition) -> Conjunction:
        match condition.kind:
            case "true":
                return Conjunction()
            case "false":
                return _NEVER
            case "eq" | "ge":
                return Conjunction((self._linear(condition.expr).row(equal=condition.kind == "eq"),))
            case "ne":
                linear = self._linear(condition.expr)
                sides = tuple(Conjunction((linear.row(-1, sign),)) for sign in (1, -1))
                return Conjunction((), (sides,))
        parts = [self._conjunction(operand) for operand in condition.operands]
        if condition.kind == "or":
            return Conjunction((), (tuple(parts),))
        rows = tuple(row for part in parts for row in part.rows)
        return Conjunction(rows, tuple(clause for part in parts for clause in part.clauses))

    def _linear(self, expr: Expr) -> Linear:
        result = Linear()
        for monomial, coefficient in expr._polynomial.items():
            if monomial:
                variable = self._monomial(monomial)
                total = result.get(variable, 0) + coefficient
                result[variable] = total
            else:
                result.constant = coefficient
        return result

    def _monomial(self, monomial: Monomial) -> int:
        variables = [self._atom(atom) for atom in monomial]
        result = variables[0]
        for variable in variables[1:]:
            result = self.product(result, variable)
        return result

    def product(self, left: int, right: int) -> int:
        """The variable for the product of two variables."""
        key = (left, right) if left <= right else (right, left)
        found = self.products.get(key)
        if found is None:
            found = self.products[key] = self._fresh()
        return found

    def _fresh(self) -> int:
        self.size += 1
        return self.size - 1

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, Symbol):
            if atom.name not in self.symbols:
                self.symbols[atom.name] = self._fresh()
            return self.symbols[atom.name]
        if atom not in self._functions:
            arguments = [self._linear(arg) for arg in atom.args]
            self._functions[atom] = variable = self._fresh()
            self._define(atom, variable, arguments)
        return self._functions[atom]

    def _define(self, atom: Function, variable: int, arguments: list[Linear]) -> None:
        this = Linear({variable: 1})
        if atom.kind in ("max", "min"):
            sign = 1 if atom.kind == "max" else -1
            gaps = [this.plus(argument, -1) for argument in arguments]
            self.rows += [gap.row(0, sign) for gap in gaps]
            self.clauses.append(tuple(Conjunction((gap.row(0, -sign),)) for gap in gaps))
            return
        numerator, divisor = arguments
        if not divisor:
            rest = numerator.plus(this, -divisor.constant)
            self.rows += _remainder(rest, divisor)
            return
        rest = numerator.plus(Linear({self.product(variable, self._as_variable(divisor)): 1}), -1)
        negated = Linear().plus(divisor, -1)
        self.clauses.append(
            (
                Conjunction((divisor.row(-1), *_remainder(rest, divisor))),
                Conjunction((negated.row(-1), *_remainder(Linear().plus(rest, -1), negated))),
            )
        )

    def _as_variable(self, linear: Linear) -> int:
        if len(linear) == 1 and not linear.constant:
            ((variable, coefficient),) = linear.items()
            if coefficient == 1:
                return variable
        variable = self._fresh()
        self.rows.append(linear.plus(Linear({variable: 1}), -1).row(equal=True))
        return variable


def _remainder(rest: Linear, divisor: Linear) -> list[Row]:
    """The constraints 0 <= rest <= divisor - 1."""
    return [rest.row(), divisor.plus(rest, -1).row(-1)]


def is_linear(expr: Expr) -> bool:
    """Whether isl alone decides a condition on it exactly: no products, and no division except by constants."""
    return all(len(monomial) <= 1 and all(_is_linear_atom(atom) for atom in monomial) for monomial in expr._polynomial)


def _is_linear_atom(atom: Any) -> bool:
    if isinstance(atom, Symbol):
        return True
    return (atom.kind != "floordiv" or atom.args[1].as_int() is not None) and all(map(is_linear, atom.args))
