"""Merges conditions: equal ones, bounds of one sum, remainders of one sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import lcm
from typing import Any

from symshape.prover.numbers.condition import Condition, equals
from symshape.prover.numbers.expr import Expr, Function


@dataclass(frozen=True, slots=True)
class Merged:
    """A condition, and the origins of all conditions merged into it, without repetitions."""

    condition: Condition
    origins: tuple[Any, ...] = ()

    def joined(self, origins: Iterable[Any]) -> Merged:
        """The same condition with more origins."""
        added = tuple(origins)
        if not added and len(self.origins) < 2:
            return self
        return Merged(self.condition, tuple(dict.fromkeys((*self.origins, *added))))


def merge(items: Iterable[Merged], reduce: Callable[[Condition], Condition] = lambda c: c) -> list[Merged]:
    """An equivalent, shorter list of conditions, in order of first appearance.

    `reduce` maps a condition to an equivalent one under some facts; conditions are compared after it, and the result is
    then equivalent under those facts.
    """
    by_form: dict[Any, tuple[Merged, Condition]] = {}
    for item in items:
        reduced = reduce(item.condition)
        if reduced.kind == "true":
            continue
        form = _form(reduced)
        other = by_form.get(form)
        both = (item.joined(()), reduced) if other is None else _combined(other, (item, reduced), reduce)
        if both is None:
            by_form[form, item.condition] = item, reduced
        else:
            by_form[form] = both
    for form, (item, reduced) in list(by_form.items()):
        opposite = _form(Condition("ge", -reduced.expr)) if reduced.kind == "ge" else form
        if form not in by_form or opposite == form or opposite not in by_form:
            continue
        equation = equals(reduced.expr, 0)
        spoken = equals(item.condition.expr, 0)
        # x >= 80 is 3*y >= 79 where x == 3*y + 1, and so y >= 27, but x == 80 is not y == 27.
        if by_form[opposite][1].expr == -reduced.expr and reduce(spoken) == equation:
            by_form[form] = Merged(spoken, item.origins).joined(by_form.pop(opposite)[0].origins), equation
    return [item for item, _ in by_form.values()]


def _form(condition: Condition) -> Any:
    """The key of conditions that may be merged into one."""
    if condition.kind == "ge":
        return "ge", condition.expr - condition.expr.constant
    remainder = remainder_of(condition)
    if remainder is not None:
        return "mod", remainder[0]
    return condition


def _combined(
    first: tuple[Merged, Condition], second: tuple[Merged, Condition], reduce: Callable[[Condition], Condition]
) -> tuple[Merged, Condition] | None:
    """One condition equivalent to two of the same form; None if it cannot be expressed in the symbols of the first."""
    origins = second[0].origins
    if first[1].kind == "ge":
        tighter = first if first[1].expr.constant <= second[1].expr.constant else second
        return Merged(tighter[0].condition, first[0].origins).joined(origins), tighter[1]
    one, two = remainder_of(first[1]), remainder_of(second[1])
    if one is None or two is None:
        return first[0].joined(origins), first[1]
    spoken = remainder_of(first[0].condition)
    if spoken is None:
        return None
    number = lcm(one[1], two[1])
    both, reduced = equals(spoken[0] % number, 0), equals(one[0] % number, 0)
    if reduce(both) != reduced:  # (y + 5*z) % 4 is (y + z) % 4, but by 12 they differ
        return None
    return Merged(both, first[0].origins).joined(origins), reduced


def remainder_of(condition: Condition) -> tuple[Expr, int] | None:
    """(e, k) of e % k == 0."""
    if condition.kind != "eq" or len(condition.expr.terms) != 1:
        return None
    _, atoms = condition.expr.terms[0]
    if len(atoms) != 1 or not isinstance(atoms[0], Function) or atoms[0].kind != "mod":
        return None
    base, divisor = atoms[0].args
    number = divisor.as_int()
    return None if number is None else (base, number)
