"""Conditions that say one thing together, without any facts: equal ones, bounds of one sum, remainders of one sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm
from typing import Any

from symshape.prover.condition import Condition, equals
from symshape.prover.expr import Expr, Function


@dataclass(frozen=True, slots=True)
class Merged:
    """A condition, and where all that went into it came from, without repetitions."""

    condition: Condition
    origins: tuple[Any, ...] = ()

    def joined(self, origins: Iterable[Any]) -> Merged:
        """The same condition with more origins."""
        return Merged(self.condition, tuple(dict.fromkeys((*self.origins, *origins))))


def merge(items: Iterable[Merged]) -> list[Merged]:
    """Fewer conditions that are equivalent together, in order of first appearance."""
    by_form: dict[Any, Merged] = {}
    for item in items:
        if item.condition.kind == "true":
            continue
        form = _form(item.condition)
        other = by_form.get(form)
        by_form[form] = item.joined(()) if other is None else _combined(other, item)
    for form, item in list(by_form.items()):
        if form not in by_form or item.condition.kind != "ge":
            continue
        opposite = _form(Condition("ge", -item.condition.expr))
        other = by_form.get(opposite)
        if other is not None and other.condition.expr == -item.condition.expr:
            by_form[form] = Merged(equals(item.condition.expr, 0), item.origins).joined(other.origins)
            del by_form[opposite]
    return list(by_form.values())


def _form(condition: Condition) -> Any:
    """What conditions have in common of which one says all."""
    if condition.kind == "ge":
        return "ge", condition.expr - condition.expr.constant
    remainder = _remainder(condition)
    if remainder is not None:
        return "mod", remainder[0]
    return condition


def _combined(first: Merged, second: Merged) -> Merged:
    """Both, which have the same form."""
    if first.condition.kind == "ge":
        tighter = first if first.condition.expr.constant <= second.condition.expr.constant else second
        return Merged(tighter.condition, first.origins).joined(second.origins)
    one, two = _remainder(first.condition), _remainder(second.condition)
    if one is None or two is None:
        return first.joined(second.origins)
    both = equals(one[0] % lcm(one[1], two[1]), 0)
    return Merged(both, first.origins).joined(second.origins)


def _remainder(condition: Condition) -> tuple[Expr, int] | None:
    """(e, k) of e % k == 0."""
    if condition.kind != "eq" or len(condition.expr.terms) != 1:
        return None
    _, atoms = condition.expr.terms[0]
    if len(atoms) != 1 or not isinstance(atoms[0], Function) or atoms[0].kind != "mod":
        return None
    base, divisor = atoms[0].args
    number = divisor.as_int()
    return None if number is None else (base, number)
