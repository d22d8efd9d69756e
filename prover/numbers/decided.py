"""Decides conditions by normal forms, bounds and divisibility, without a solver."""

from __future__ import annotations

from collections.abc import Iterable

from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.condition import Condition, all_of, any_of, at_least, differs, equals
from symshape.prover.numbers.expr import Atom, Expr
from symshape.prover.numbers.facts import Facts


def facts_from(conditions: Iterable[Condition]) -> Facts:
    """A `Facts` with the conditions that it can represent; the others are left out."""
    facts = Facts({})
    for condition in conditions:
        learn(facts, condition)
    return facts


def learn(facts: Facts, condition: Condition) -> None:
    """Adds a condition to facts: comparisons == and >=, and conjunctions of them. Other conditions are ignored."""
    if condition.kind == "and":
        for part in condition.operands:
            learn(facts, part)
    elif condition.kind == "eq":
        facts.assume_equal(condition.expr, 0)
    elif condition.kind == "ge":
        facts.assume_nonnegative(condition.expr)


def decided(facts: Facts, condition: Condition) -> bool | None:
    """The truth of the condition under the facts; None if it is not found here."""
    return _decided(facts, without_factors(facts, condition.map_exprs(facts.normal)))


def _decided(facts: Facts, condition: Condition) -> bool | None:
    expr = condition.expr
    match condition.kind:
        case "ge":
            return True if facts.nonnegative(expr) else False if facts.nonnegative(-expr - 1) else None
        case "eq" | "ne":
            is_equal = condition.kind == "eq"
            if facts.equal(expr, 0):
                return is_equal
            apart = facts.nonnegative(expr - 1) or facts.nonnegative(-expr - 1)
            return not is_equal if apart else None
        case "and" | "or":
            decisive = condition.kind == "or"
            answers = [_decided(facts, operand) for operand in condition.operands]
            if decisive in answers:
                return decisive
            return None if None in answers else not decisive
    return condition.as_bool()


def has_common_factor(condition: Condition) -> bool:
    """Whether all terms of some comparison have a common factor other than a number."""
    if condition.kind in ("and", "or"):
        return any(map(has_common_factor, condition.operands))
    return condition.kind in ("eq", "ne", "ge") and bool(poly.common_monomial(condition.expr._polynomial))


def without_factors(facts: Facts, condition: Condition) -> Condition:
    """An equivalent condition under the facts, without common factors that are known to be nonzero: positive ones of e
    >= 0, of either sign of e == 0 and e != 0."""
    if condition.kind in ("and", "or"):
        operands = [without_factors(facts, operand) for operand in condition.operands]
        return all_of(*operands) if condition.kind == "and" else any_of(*operands)
    if not has_common_factor(condition):
        return condition
    signs = (1,) if condition.kind == "ge" else (1, -1)

    def is_apart_from_zero(atom: Atom) -> bool:
        return any(facts.nonnegative(sign * Expr({(atom,): 1}) - 1) for sign in signs)

    common = poly.common_monomial(condition.expr._polynomial)
    rest = poly.divide_exactly(condition.expr._polynomial, {tuple(filter(is_apart_from_zero, common)): 1})
    if rest is None:
        return condition
    return {"eq": equals, "ne": differs, "ge": at_least}[condition.kind](Expr(rest), 0)
