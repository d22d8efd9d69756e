"""Boolean conditions over integer expressions: comparisons with zero, joined by and, or, not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from symshape.prover.expr import Expr, as_expr

Kind = Literal["eq", "ne", "ge", "and", "or", "not", "true", "false"]


@dataclass(frozen=True)
class Condition:
    """``eq``/``ne``/``ge``: ``difference`` ==, !=, >= 0. ``and``/``or``/``not`` over ``operands``. Build with the methods."""

    kind: Kind
    difference: Expr = Expr.const(0)
    operands: tuple[Condition, ...] = ()

    @staticmethod
    def true() -> Condition:
        return Condition("true")

    @staticmethod
    def false() -> Condition:
        return Condition("false")

    @staticmethod
    def _compare(kind: Kind, difference: Expr) -> Condition:
        value = difference.as_int()
        if value is None:
            return Condition(kind, difference)
        holds = {"eq": value == 0, "ne": value != 0, "ge": value >= 0}[kind]
        return Condition("true" if holds else "false")

    @staticmethod
    def eq(left: Expr | int, right: Expr | int) -> Condition:
        return Condition._compare("eq", as_expr(left) - right)

    @staticmethod
    def ne(left: Expr | int, right: Expr | int) -> Condition:
        return Condition._compare("ne", as_expr(left) - right)

    @staticmethod
    def ge(left: Expr | int, right: Expr | int) -> Condition:
        return Condition._compare("ge", as_expr(left) - right)

    @staticmethod
    def all_of(*parts: Condition) -> Condition:
        return _join("and", "true", "false", parts)

    @staticmethod
    def any_of(*parts: Condition) -> Condition:
        return _join("or", "false", "true", parts)

    def negated(self) -> Condition:
        match self.kind:
            case "true" | "false":
                return Condition("false" if self.kind == "true" else "true")
            case "eq" | "ne":
                return Condition("ne" if self.kind == "eq" else "eq", self.difference)
            case "ge":
                return Condition("ge", -self.difference - 1)
            case "not":
                return self.operands[0]
            case "and":
                return Condition.any_of(*(p.negated() for p in self.operands))
            case "or":
                return Condition.all_of(*(p.negated() for p in self.operands))

    @property
    def symbols(self) -> frozenset[str]:
        return self.difference.symbols.union(*(p.symbols for p in self.operands))

    def evaluate(self, values: Mapping[str, int]) -> bool:
        """The truth for symbols given by name; KeyError when one is missing."""
        match self.kind:
            case "true" | "false":
                return self.kind == "true"
            case "and":
                return all(p.evaluate(values) for p in self.operands)
            case "or":
                return any(p.evaluate(values) for p in self.operands)
            case "not":
                return not self.operands[0].evaluate(values)
        value = self.difference.evaluate(values)
        return {"eq": value == 0, "ne": value != 0, "ge": value >= 0}[self.kind]

    def sides(self) -> tuple[Expr, Expr]:
        """The difference as left - right without a negative term on either side: what a reader would write."""
        left = right = Expr.const(0)
        for coefficient, atoms in self.difference.terms:
            term = Expr.const(abs(coefficient))
            for atom in atoms:
                term = term * (atom.rebuild(atom.args) if hasattr(atom, "args") else Expr.symbol(atom.name))
            left, right = (left + term, right) if coefficient > 0 else (left, right + term)
        return left, right

    def python(self) -> str:
        """Python source."""
        match self.kind:
            case "true" | "false":
                return self.kind.capitalize()
            case "and" | "or":
                return f" {self.kind} ".join(f"({p.python()})" for p in self.operands)
            case "not":
                return f"not ({self.operands[0].python()})"
        left, right = self.sides()
        if self.kind == "ge" and left.as_int() is not None:
            return f"{right} <= {left}"
        return f"{left} { {'eq': '==', 'ne': '!=', 'ge': '>='}[self.kind]} {right}"

    def __str__(self) -> str:
        return self.python()


def _join(kind: Kind, neutral: str, absorbing: str, parts: tuple[Condition, ...]) -> Condition:
    flat: dict[Condition, None] = {}
    for part in parts:
        for item in part.operands if part.kind == kind else (part,):
            if item.kind == absorbing:
                return item
            if item.kind != neutral:
                flat.setdefault(item)
    if not flat:
        return Condition.true() if neutral == "true" else Condition.false()
    return next(iter(flat)) if len(flat) == 1 else Condition(kind, operands=tuple(flat))
