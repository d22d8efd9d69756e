"""Evaluates conditions at a point. A point at which a divisor is 0 is not in the domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symshape.prover.numbers.condition import Condition


def value_of(condition: Condition, values: Mapping[str, int]) -> bool | None:
    """The truth of a condition at a point; None if a divisor in it is 0. KeyError if a symbol is missing."""
    try:
        return _evaluate(condition, values)
    except ZeroDivisionError:
        return None


def holds_everywhere(conditions: Iterable[Condition], values: Mapping[str, int]) -> bool:
    """Whether all conditions hold at a point, and no divisor is 0."""
    return all(value_of(condition, values) for condition in conditions)


def _evaluate(condition: Condition, values: Mapping[str, int]) -> bool:
    if condition.kind not in ("and", "or"):
        return condition.evaluate(values)
    results = [_evaluate(operand, values) for operand in condition.operands]
    return all(results) if condition.kind == "and" else any(results)
