"""Imports SymFloats as f64 arithmetic on sizes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import sympy
from torch_mlir import ir

from symshape.dialects import reals
from symshape.dialects.sizes import Sizes
from symshape.frontend.importer.traced_symbols import named_expr
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr

_QUOTIENTS = frozenset({"IntTrueDiv", "FloatTrueDiv"})
_FOLDS = {"Add": "arith.addf", "Mul": "arith.mulf"}


def emit_real(sizes: Sizes, expr: Any) -> ir.Value:
    """Emits a float expression; UnsupportedExpr if it is not made of sizes by + * / alone."""
    kind = type(expr).__name__
    if isinstance(expr, (sympy.Float, float)):
        return reals.constant(float(expr))
    if kind == "IntTrueDiv" and all(a.is_integer for a in expr.args):
        return reals.quotient(*(sizes.value(_size(sizes, a)) for a in expr.args))
    if kind in _QUOTIENTS:
        return reals.binary("arith.divf", *(emit_real(sizes, a) for a in expr.args))
    if kind == "ToFloat":
        return emit_real(sizes, expr.args[0])
    if kind in _FOLDS and not expr.is_integer:
        return reduce(lambda x, y: reals.binary(_FOLDS[kind], x, y), [emit_real(sizes, a) for a in expr.args])
    return reals.from_size(sizes.value(_size(sizes, expr)))


def _size(sizes: Sizes, expr: Any) -> Expr:
    size = named_expr(expr)
    if not all(Expr.symbol(name) in sizes for name in size.symbols):
        raise UnsupportedExpr(expr, "a symbol of it is no size here")
    return size
