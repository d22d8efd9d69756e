"""Boolean conditions over size expressions, in normal form.

A comparison is `expr == 0`, `expr != 0` or `expr >= 0` of integers, without a common factor; negation is pushed down to
the comparisons. Build conditions with the functions below, which decide what is decided by the form alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.expr import Expr, Term, as_expr
from symshape.prover.numbers.polynomial import Polynomial
from symshape.prover.numbers.text import terms_text

ConditionKind = Literal["true", "false", "eq", "ne", "ge", "real", "and", "or"]

_OPPOSITE: Mapping[ConditionKind, ConditionKind] = {
    "true": "false",
    "false": "true",
    "eq": "ne",
    "ne": "eq",
    "and": "or",
    "or": "and",
}
_ZERO: Final = Expr.const(0)


@dataclass(frozen=True, slots=True)
class Real:
    """A condition computed with floats: Python source over `{0}`, `{1}`, ..., which are sizes, and over `math`."""

    template: str
    sizes: tuple[Expr, ...]

    def python(self) -> str:
        """The source over symbols."""
        texts = [size.python() for size in self.sizes]
        return self.template.format(*(text if text.isidentifier() else f"({text})" for text in texts))


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of `expr` with 0 ("eq", "ne", "ge"), an "and" or "or" of `operands`, "true" or "false", or a
    condition on floats ("real"). The prover draws no conclusions from the last: it is only checked at call time."""

    kind: ConditionKind
    expr: Expr = _ZERO
    operands: tuple[Condition, ...] = ()
    real: Real | None = None

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in it."""
        sizes = self.real.sizes if self.real else ()
        return self.expr.symbols.union(*(part.symbols for part in self.operands), *(size.symbols for size in sizes))

    @property
    def has_reals(self) -> bool:
        """Whether floats decide a part of it."""
        return self.real is not None or any(operand.has_reals for operand in self.operands)

    def as_bool(self) -> bool | None:
        """The value of a decided condition, else None."""
        return {"true": True, "false": False}.get(self.kind)

    def evaluate(self, values: Mapping[str, int]) -> bool:
        """Whether it holds; KeyError when a symbol is missing. Like in Python, operands after a decision do not run."""
        match self.kind:
            case "eq":
                return self.expr.evaluate(values) == 0
            case "ne":
                return self.expr.evaluate(values) != 0
            case "ge":
                return self.expr.evaluate(values) >= 0
            case "real":
                return bool(eval(self.python(), {"math": math}, dict(values)))
            case "or":
                return any(operand.evaluate(values) for operand in self.operands)
            case _:
                return self.kind != "false" and all(operand.evaluate(values) for operand in self.operands)

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Condition:
        """All named symbols replaced at once; ZeroDivisionError when a divisor becomes 0."""
        return self.map_exprs(lambda expr: expr.substitute(replacements))

    def map_exprs(self, change: Callable[[Expr], Expr]) -> Condition:
        """The same condition with every compared expression changed."""
        if self.kind in ("and", "or"):
            operands = [operand.map_exprs(change) for operand in self.operands]
            return all_of(*operands) if self.kind == "and" else any_of(*operands)
        if self.real is not None:
            return real(self.real.template, [change(size) for size in self.real.sizes])
        return self if self.as_bool() is not None else _comparison(self.kind, change(self.expr))

    def python(self) -> str:
        """Python source, a comparison as a person would write it: "s0 == 4*s1", "s0 >= 2"."""
        if self.kind in ("true", "false"):
            return self.kind.capitalize()
        if self.real is not None:
            return self.real.python()
        if self.kind not in ("and", "or"):
            return _comparison_text(self.kind, self.expr)
        texts = [f"({part})" if part.kind == "or" else str(part) for part in self.operands]
        return f" {self.kind} ".join(texts)

    def __str__(self) -> str:
        return self.python()


TRUE = Condition("true")
FALSE = Condition("false")


def equals(left: Expr | int, right: Expr | int) -> Condition:
    """left == right."""
    return _comparison("eq", as_expr(left) - right)


def differs(left: Expr | int, right: Expr | int) -> Condition:
    """left != right."""
    return _comparison("ne", as_expr(left) - right)


def at_least(left: Expr | int, right: Expr | int) -> Condition:
    """left >= right."""
    return _comparison("ge", as_expr(left) - right)


def greater(left: Expr | int, right: Expr | int) -> Condition:
    """left > right."""
    return _comparison("ge", as_expr(left) - right - 1)


def real(template: str, sizes: Iterable[Expr]) -> Condition:
    """A condition on floats: see `Real`."""
    return Condition("real", real=Real(template, tuple(sizes)))


def all_of(*conditions: Condition) -> Condition:
    """The conjunction, flattened, without repetitions."""
    return _joined("and", conditions, neutral=TRUE, decided=FALSE)


def any_of(*conditions: Condition) -> Condition:
    """The disjunction, flattened, without repetitions."""
    return _joined("or", conditions, neutral=FALSE, decided=TRUE)


def negation(condition: Condition) -> Condition:
    """Not the condition, pushed down to the comparisons."""
    if condition.kind == "ge":
        return _comparison("ge", -condition.expr - 1)
    if condition.real is not None:
        return real(f"not ({condition.real.template})", condition.real.sizes)
    opposite = _OPPOSITE[condition.kind]
    return Condition(opposite, condition.expr, tuple(map(negation, condition.operands)))


def _joined(
    kind: Literal["and", "or"], conditions: tuple[Condition, ...], neutral: Condition, decided: Condition
) -> Condition:
    parts: dict[Condition, None] = {}
    for condition in conditions:
        parts.update(dict.fromkeys(condition.operands if condition.kind == kind else (condition,)))
    parts.pop(neutral, None)
    if decided in parts or not parts:
        return decided if decided in parts else neutral
    return next(iter(parts)) if len(parts) == 1 else Condition(kind, operands=tuple(parts))


def _comparison(kind: ConditionKind, expr: Expr) -> Condition:
    """The normal form: coefficients without common factor, the first positive where the sign means nothing."""
    value = expr.as_int()
    if value is not None:
        return TRUE if {"eq": value == 0, "ne": value != 0, "ge": value >= 0}[kind] else FALSE
    varying: Polynomial = {monomial: c for monomial, c in expr._polynomial.items() if monomial}
    factor = poly.content(varying)
    if kind == "ge":
        return Condition(kind, expr // factor)
    if expr._polynomial.get((), 0) % factor:
        return FALSE if kind == "eq" else TRUE
    sign = -1 if varying[poly.leading(varying)] < 0 else 1
    return Condition(kind, expr // (factor * sign))


def _comparison_text(kind: ConditionKind, expr: Expr) -> str:
    """Positive terms on the left, the others on the right; a constant alone on the right."""
    constant = sum(coefficient for coefficient, atoms in expr.terms if not atoms)
    left: list[Term] = [term for term in expr.terms if term[0] > 0 and term[1]]
    right: list[Term] = [(-coefficient, atoms) for coefficient, atoms in expr.terms if coefficient < 0 and atoms]
    operator = {"eq": "==", "ne": "!=", "ge": ">="}[kind]
    if not left:  # 5 - s0 >= 0 is s0 <= 5
        left, right, constant, operator = right, left, -constant, "<=" if kind == "ge" else operator
    if kind == "ge" and constant == -1 and right:
        operator, constant = ">", 0
    if constant > 0 and right:
        left.append((constant, ()))
    elif constant:
        right.append((-constant, ()))
    return f"{terms_text(left)} {operator} {terms_text(right)}"
