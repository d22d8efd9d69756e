"""Converts boolean conditions over sizes to SSA ``i1`` values and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.locations import source_line
from symshape.dialects.sizes import Sizes, described
from symshape.errors import CompileError
from symshape.prover.numbers.condition import (
    FALSE,
    TRUE,
    Condition,
    all_of,
    any_of,
    at_least,
    differs,
    equals,
    greater,
    negation,
)
from symshape.prover.numbers.expr import Expr, expr_of_atom
from symshape.prover.numbers.facts import INT64_MAX

_EQ, _NE, _SLT, _SLE, _SGT, _SGE = range(6)
PREDICATES = {"eq": _EQ, "ne": _NE, "ge": _SGE}
JOIN = {"and": "arith.andi", "or": "arith.ori"}


def emit_condition(sizes: Sizes, condition: Condition) -> ir.Value:
    """Writes a condition at the current insertion point."""
    i1 = ir.IntegerType.get_signless(1)
    kind = condition.kind
    if kind in ("true", "false"):
        return ir.Operation.create(
            "arith.constant", [i1], attributes={"value": ir.IntegerAttr.get(i1, int(kind == "true"))}
        ).result
    if kind in JOIN:
        values = [emit_condition(sizes, part) for part in condition.operands]
        result = values[0]
        for value in values[1:]:
            result = ir.Operation.create(JOIN[kind], [i1], [result, value]).result
        return result
    number = next((coefficient for coefficient, atoms in condition.expr.terms if not atoms), 0)
    if abs(number) > INT64_MAX:  # what it is compared with is computed in 64 bits: that is less
        return emit_condition(sizes, TRUE if kind == "ne" or (kind == "ge" and number > 0) else FALSE)
    left, right = sides_of(condition.expr)
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), PREDICATES[kind])
    return ir.Operation.create(
        "arith.cmpi", [i1], [sizes.value(left), sizes.value(right)], {"predicate": attribute}
    ).result


def emit_multiples(sizes: Sizes, exprs: Sequence[Expr], number: int) -> ir.Value:
    """Writes one test of whether a power of two divides all of the expressions: ``(a | b | c) & (number - 1) == 0``."""
    bits = sizes.value(exprs[0])
    for expr in exprs[1:]:
        bits = ir.Operation.create("arith.ori", [sizes.index_type], [bits, sizes.value(expr)]).result
    rest = ir.Operation.create("arith.andi", [sizes.index_type], [bits, sizes.value(number - 1)]).result
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _EQ)
    i1 = ir.IntegerType.get_signless(1)
    return ir.Operation.create("arith.cmpi", [i1], [rest, sizes.value(0)], {"predicate": attribute}).result


def sides_of(difference: Expr) -> tuple[Expr, Expr]:
    """The difference as left - right without negative terms on either side, as people write it."""
    left = right = Expr.const(0)
    for coefficient, atoms in difference.terms:
        term = Expr.const(abs(coefficient))
        for atom in atoms:
            term = term * expr_of_atom(atom)
        left, right = (left + term, right) if coefficient > 0 else (left, right + term)
    return left, right


def read_condition(sizes: Sizes, value: ir.Value) -> Condition | None:
    """The condition that an ``i1`` value computes; None if it is not arithmetic on sizes."""
    if isinstance(value.owner, ir.Block):
        return None
    op: Any = value.owner
    name = op.name
    if name == "arith.constant":
        return TRUE if ir.IntegerAttr(op.attributes["value"]).value else FALSE
    if name == "arith.cmpi":
        left, right = op.operands
        if left not in sizes or right not in sizes:
            return _multiples(sizes, op)
        return _comparison(ir.IntegerAttr(op.attributes["predicate"]).value, sizes.expr(left), sizes.expr(right))
    if name in ("arith.andi", "arith.ori", "arith.xori"):
        first, second = (read_condition(sizes, v) for v in op.operands)
        if first is None or second is None:
            return None
        if name == "arith.andi":
            return all_of(first, second)
        if name == "arith.ori":
            return any_of(first, second)
        if second.kind in ("true", "false"):
            return negation(first) if second.kind == "true" else first
    return None


def _comparison(predicate: int, left: Expr, right: Expr) -> Condition | None:
    table = {
        _EQ: lambda: equals(left, right),
        _NE: lambda: differs(left, right),
        _SLT: lambda: greater(right, left),
        _SLE: lambda: at_least(right, left),
        _SGT: lambda: greater(left, right),
        _SGE: lambda: at_least(left, right),
    }
    return table[predicate]() if predicate in table else None


def _multiples(sizes: Sizes, comparison: Any) -> Condition | None:
    """Matches what ``emit_multiples`` writes: low bits are all 0."""
    left, right = comparison.operands
    owner: Any = left.owner
    is_equal = ir.IntegerAttr(comparison.attributes["predicate"]).value == _EQ
    if not is_equal or isinstance(owner, ir.Block) or owner.name != "arith.andi" or right not in sizes:
        return None
    bits, mask = owner.operands
    number = (sizes.expr(mask).as_int() or 0) + 1 if mask in sizes else 0
    if sizes.expr(right) != 0 or number < 2 or number & (number - 1):
        return None
    parts, exprs = [bits], []
    while parts:
        part = parts.pop(0)
        if part in sizes:
            exprs.append(sizes.expr(part))
        elif not isinstance(part.owner, ir.Block) and part.owner.name == "arith.ori":
            parts = [*part.owner.operands, *parts]
        else:
            return None
    return all_of(*(equals(expr % number, 0) for expr in exprs))


def condition_of(sizes: Sizes, value: ir.Value) -> Condition:
    """The condition that an ``i1`` value computes. CompileError, with its location, if it is not arithmetic on
    sizes."""
    condition = read_condition(sizes, value)
    if condition is None:
        raise CompileError(
            f"{described(value)} is no condition over sizes",
            where=source_line(value.location),
            next_step="compute it by arith.cmpi of sizes, arith.andi, arith.ori and constants",
        )
    return condition
