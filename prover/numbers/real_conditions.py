"""Conditions on floats computed from sizes, from sympy: ``x.size(0) ** 0.5 > 3``.

They become Python source that computes as the user's function does: sizes are exact, floats have 64 bits.

PyTorch's own sympy classes are matched by class name: this file imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import sympy

from symshape.prover.numbers.condition import Condition, real
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr


def real_condition_from_sympy(relation: Any) -> Condition:
    """The condition; UnsupportedExpr if it contains an unknown function."""
    symbols = sorted(relation.free_symbols, key=str)
    for symbol in symbols:
        if symbol.is_integer is False or (symbol.is_integer is None and symbol.is_real):
            raise UnsupportedExpr(symbol, "a symbol that is not an integer")
    places = {symbol: f"{{{i}}}" for i, symbol in enumerate(symbols)}
    return real(_text(relation, places), [Expr.symbol(str(symbol)) for symbol in symbols])


def _text(expr: Any, places: Mapping[Any, str]) -> str:
    """Python source; every operation is in parentheses or a call. UnsupportedExpr for an unknown function."""
    match expr:
        case sympy.Symbol():
            return places[expr]
        case bool() | sympy.logic.boolalg.BooleanAtom():
            return str(bool(expr))
        case sympy.Integer():
            return f"({int(expr)})" if expr < 0 else str(int(expr))
        case sympy.Rational():
            return f"({int(expr.p)} / {int(expr.q)})"
        case sympy.Float():
            return f"({float(expr)!r})" if float(expr) < 0 else repr(float(expr))
        case sympy.Piecewise():
            *chosen, (last, _) = expr.args  # the last holds where the others do not: the tracer's always say all
            pairs = [f"{_text(value, places)} if {_text(holds, places)} else " for value, holds in chosen]
            return f"({''.join(pairs)}{_text(last, places)})"
    name = type(expr).__name__
    texts = [_text(arg, places) for arg in expr.args]
    if name in _OPERATORS:
        return f"({f' {_OPERATORS[name]} '.join(texts)})"
    if name in _CALLS:
        return _CALLS[name].format(*texts)
    if name.startswith("OpaqueUnaryFn_"):
        return f"math.{name.removeprefix('OpaqueUnaryFn_')}({texts[0]})"
    if hasattr(expr, "source"):  # a function of Python numbers: frontend/bridge/number_functions.py
        return f"{expr.source}({', '.join(texts)})"
    if name in _FOLDS:
        return _FOLDS[name](texts)
    raise UnsupportedExpr(expr, f"{name} is not known")


_OPERATORS: Final[Mapping[str, str]] = {
    "Add": "+",
    "Mul": "*",
    "Pow": "**",
    "FloatPow": "**",
    "PowByNatural": "**",
    "FloatTrueDiv": "/",
    "IntTrueDiv": "/",
    "FloorDiv": "//",
    "CleanDiv": "//",
    "Mod": "%",
    "PythonMod": "%",
    "LShift": "<<",
    "RShift": ">>",
    "BitwiseFn_bitwise_and": "&",
    "BitwiseFn_bitwise_or": "|",
    "BitwiseFn_bitwise_xor": "^",
    "Equality": "==",
    "Unequality": "!=",
    "GreaterThan": ">=",
    "StrictGreaterThan": ">",
    "LessThan": "<=",
    "StrictLessThan": "<",
    "And": "and",
    "Or": "or",
}

_CALLS: Final[Mapping[str, str]] = {
    "Abs": "abs({0})",
    "CeilDiv": "(-(-{0} // {1}))",
    "CeilToInt": "math.ceil({0})",
    "FloorToInt": "math.floor({0})",
    "Identity": "({0})",
    "Infinity": "math.inf",
    "IntInfinity": "math.inf",
    "ModularIndexing": "({0} // {1} % {2})",
    "NegativeInfinity": "(-math.inf)",
    "NegativeIntInfinity": "(-math.inf)",
    "Not": "(not {0})",
    "RoundDecimal": "round({0}, {1})",
    "RoundToInt": "round({0})",
    "ToFloat": "float({0})",
    "TruncToFloat": "float(math.trunc({0}))",
    "TruncToInt": "math.trunc({0})",
    "Where": "({1} if {0} else {2})",
    "ceiling": "math.ceil({0})",
    "floor": "math.floor({0})",
}

_FOLDS: Final[Mapping[str, Callable[[list[str]], str]]] = {
    "Max": lambda texts: f"max({', '.join(texts)})",
    "Min": lambda texts: f"min({', '.join(texts)})",
}
