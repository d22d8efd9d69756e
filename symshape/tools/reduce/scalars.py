"""Evaluates arithmetic on sizes with Python numbers, and sizes at the hints of their symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects.accessors import symbol_range
from symshape.random_tensors import SIZE_WITHOUT_HINT

_PREDICATES: Final = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.remsi": operator.mod,  # equal for non-negative operands, and only those occur
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.index_cast": lambda a: a,
    "arith.sitofp": float,
    "arith.addf": operator.add,
    "arith.subf": operator.sub,
    "arith.mulf": operator.mul,
    "arith.divf": operator.truediv,
}
_UNLIMITED: Final = 2**31


def evaluate(op: Any, operands: Sequence[Any]) -> Any:
    """The result of an operation on scalars; None for other operations."""
    name = op.name
    if name == "arith.constant":
        return _constant(op.attributes["value"])
    if name == "arith.cmpi":
        return _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value](*operands)
    return _OPERATORS[name](*operands) if name in _OPERATORS else None


def _constant(value: ir.Attribute) -> Any:
    if isinstance(value, ir.BoolAttr):
        return bool(value.value)
    if isinstance(value, (ir.IntegerAttr, ir.FloatAttr)):
        return bool(value.value) if str(value.type) == "i1" else value.value
    return None


def hint_of(symbol: Any) -> int:
    """The value to try for a backed symbol: its hint, else a value that its range and divisor admit."""
    hint: int = ir.IntegerAttr(symbol.attributes["hint"]).value if "hint" in symbol.attributes else -1
    low, high, divisor = symbol_range(symbol)
    if low <= hint <= high and hint % divisor == 0 and hint != -1:
        return hint
    wanted = max(low, min(SIZE_WITHOUT_HINT, high)) if abs(low) < _UNLIMITED else min(SIZE_WITHOUT_HINT, high)
    return -(-wanted // divisor) * divisor


def sizes_at_hints(operations: Sequence[Any]) -> dict[ir.Value, Any]:
    """Values of all scalars in a block that depend on backed symbols only, at the symbols' hints."""
    found: dict[ir.Value, Any] = {}
    for op in operations:
        if op.name == "symshape.symbol":
            found[op.results[0]] = hint_of(op)
        elif op.name.startswith("arith.") and all(operand in found for operand in op.operands):
            value = evaluate(op, [found[operand] for operand in op.operands])
            if value is not None:
                found[op.results[0]] = value
    return found
