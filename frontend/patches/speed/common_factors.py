"""Common factors of symbolic quotients are divided out term by term.

PyTorch does so by ``sympy.simplify``, which tries dozens of rewrites on each part of the expression: of a sum of minima
and maxima, as detectors have for the places in a row of grids, that takes seconds for each quotient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, simple_floordiv_gcd

from symshape.frontend.patches.patch import Changes


def factors_are_divided_by_terms(changes: Changes) -> None:
    """Wraps the constructor of ``FloorDiv``: ``(4*a + 2*b) // 6`` becomes ``(2*a + b) // 3``, where the factor is one
    that PyTorch finds in each term as it is written."""
    changes.wrap(FloorDiv, "eval", _reduced)


@functools.cache
def _reduced(original: Callable[..., Any]) -> Any:
    def evaluate(cls: type, base: Any, divisor: Any) -> Any:
        is_written_out = isinstance(base, sympy.Add | sympy.Mul) and not divisor.is_zero
        parts = _without_factor(base, divisor) if is_written_out else None
        return original(base, divisor) if parts is None else FloorDiv(*parts)

    return classmethod(evaluate)


def _without_factor(base: Any, divisor: Any) -> tuple[Any, Any] | None:
    """Both without their common factor; None where there is none, or PyTorch has to look for it."""
    factor = simple_floordiv_gcd(base, divisor)
    if factor != 1:
        left, right = _divided(base, factor), _divided(divisor, factor)
        return None if left is None or right is None else (left, right)
    if isinstance(divisor, sympy.Add):  # a multiple of it: (4*a + 4) // (a + 1)
        (times, sum_), (by, other) = base.primitive(), divisor.primitive()
        return (times, by) if sum_ == other else None
    return None


def _divided(number: Any, factor: Any) -> Any:
    """The quotient, summed term by term; None where a term keeps a denominator."""
    terms = [term / factor for term in sympy.Add.make_args(number)]
    return sympy.Add(*terms) if all(sympy.fraction(term)[1] == 1 for term in terms) else None
