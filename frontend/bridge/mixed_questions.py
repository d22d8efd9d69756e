"""Questions about sizes of both kinds, unbacked and of inputs, that a guard on the sizes of inputs settles.

``u0 + s0 == 0`` (edges that are left, and a loop at each of ``s0`` nodes) is false whatever ``u0`` is if ``s0 > 0``.
PyTorch decides it by its range for sizes of inputs, which begins at 2; here sizes may be 0, and so the fact is a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy


def settling_guards(
    condition: Any, unbacked: set[Any], bounds: Callable[[Any], tuple[int | None, int | None]]
) -> Iterator[tuple[Any, bool]]:
    """(condition on sizes of inputs alone, what the question's answer is where it holds). ``bounds``: those of an
    unbacked symbol, None where there is none. Nothing for a question that is not linear in the unbacked symbols, with
    coefficients of known sign."""
    if not isinstance(condition, sympy.core.relational.Relational):
        return
    least, most = _extremes(sympy.expand(condition.lhs - condition.rhs), unbacked, bounds)
    match condition:
        case sympy.Eq() | sympy.Ne():
            differs = isinstance(condition, sympy.Ne)
            rows = [(sympy.Gt, least, differs), (sympy.Lt, most, differs)]
        case sympy.Ge() | sympy.Gt():
            opposite = sympy.Lt if isinstance(condition, sympy.Ge) else sympy.Le
            rows = [(condition.func, least, True), (opposite, most, False)]
        case sympy.Le() | sympy.Lt():
            opposite = sympy.Gt if isinstance(condition, sympy.Le) else sympy.Ge
            rows = [(condition.func, most, True), (opposite, least, False)]
        case _:
            return
    yield from ((relation(extreme, 0), answer) for relation, extreme, answer in rows if extreme is not None)


def _extremes(
    difference: Any, unbacked: set[Any], bounds: Callable[[Any], tuple[int | None, int | None]]
) -> tuple[Any | None, Any | None]:
    """The least and the largest value of an expression over all values of the unbacked symbols, as expressions of the
    other symbols; None where it has no bound, or none is seen."""
    ends: list[Any | None] = [difference, difference]
    for symbol in difference.free_symbols & unbacked:
        coefficient = difference.coeff(symbol)
        if (difference - coefficient * symbol).expand().has(symbol) or coefficient.free_symbols & unbacked:
            return None, None
        low, high = bounds(symbol)
        if coefficient.is_nonpositive:
            low, high = high, low
        elif not coefficient.is_nonnegative:
            return None, None
        ends = [None if e is None or b is None else e.xreplace({symbol: b}) for e, b in zip(ends, (low, high))]
    return ends[0], ends[1]
