"""Prints expressions and conditions as JavaScript over an object ``v`` that maps symbols to values.

``fdiv`` and ``mod`` are defined in ``templates/expressions.js``: floor division and its remainder, as in Python. Exact
while all intermediate values are below 2**53.
"""

from __future__ import annotations

import json
from typing import Any

from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr, Symbol

_FUNCTIONS = {"floordiv": "fdiv", "mod": "mod", "max": "Math.max", "min": "Math.min"}
_COMPARISONS = {"eq": "===", "ne": "!==", "ge": ">="}


def javascript(expr: Expr) -> str:
    """An expression as JavaScript."""
    return " + ".join(_term(coefficient, atoms) for coefficient, atoms in expr.terms) or "0"


def javascript_condition(condition: Condition) -> str | None:
    """A condition as JavaScript; None if it is over floats, which are kept as Python source."""
    if condition.has_reals:
        return None
    if condition.kind in ("true", "false"):
        return condition.kind
    if condition.kind in ("and", "or"):
        parts = [f"({javascript_condition(operand)})" for operand in condition.operands]
        return (" && " if condition.kind == "and" else " || ").join(parts)
    return f"{javascript(condition.expr)} {_COMPARISONS[condition.kind]} 0"


def _term(coefficient: int, atoms: tuple[Any, ...]) -> str:
    number = [f"({coefficient})" if coefficient < 0 else str(coefficient)]
    factors = [*([] if coefficient == 1 and atoms else number), *map(_atom, atoms)]
    return " * ".join(factors)


def _atom(atom: Any) -> str:
    if isinstance(atom, Symbol):
        return f"v[{json.dumps(atom.name)}]"
    return f"{_FUNCTIONS[atom.kind]}({', '.join(javascript(arg) for arg in atom.args)})"
