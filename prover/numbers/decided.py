"""Conditions decided from normal forms, bounds and divisibility: the cheap answers."""

from __future__ import annotations

from collections.abc import Iterable

from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.facts import Facts


def facts_from(conditions: Iterable[Condition]) -> Facts:
    """The facts that the conditions say, as far as `Facts` can hold them."""
    facts = Facts({})
    for condition in conditions:
        learn(facts, condition)
    return facts


def learn(facts: Facts, condition: Condition) -> None:
    """Adds a condition: conjunctions of == and >=; anything else says nothing here."""
    if condition.kind == "and":
        for part in condition.operands:
            learn(facts, part)
    elif condition.kind == "eq":
        facts.assume_equal(condition.expr, 0)
    elif condition.kind == "ge":
        facts.assume_nonnegative(condition.expr)


def decided(facts: Facts, condition: Condition) -> bool | None:
    """The truth of the condition wherever the facts hold; None when this does not find it."""
    return _decided(facts, condition.map_exprs(facts.normal))


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
