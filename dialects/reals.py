"""Real numbers computed from sizes (``14 / (s0 // 16)``): f64 arithmetic in main, Python floats in the host program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch_mlir import ir

from symshape.dialects.sizes import Sizes
from symshape.prover.numbers.expr import Expr

OPERATORS = {"arith.addf": "+", "arith.subf": "-", "arith.mulf": "*", "arith.divf": "/"}

_OF_INTEGERS = "symshape.of_integers"  # a quotient of two sizes


def is_real(value: ir.Value) -> bool:
    """Whether a value is an f64 scalar computed from sizes."""
    if isinstance(value.owner, ir.Block) or str(value.type) != "f64":
        return False
    return value.owner.name in (*OPERATORS, "arith.constant", "arith.sitofp")


def binary(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return ir.Operation.create(name, [left.type], [left, right]).result


def constant(value: float) -> ir.Value:
    f64 = ir.F64Type.get()
    return ir.Operation.create("arith.constant", [f64], attributes={"value": ir.FloatAttr.get(f64, value)}).result


def from_size(size: ir.Value) -> ir.Value:
    """An index converted to f64."""
    i64, f64 = ir.IntegerType.get_signless(64), ir.F64Type.get()
    integer = ir.Operation.create("arith.index_cast", [i64], [size]).result
    return ir.Operation.create("arith.sitofp", [f64], [integer]).result


def quotient(left: ir.Value, right: ir.Value) -> ir.Value:
    """The quotient of two indices, rounded once, as Python does, also for integers of more than 53 bits."""
    result = binary("arith.divf", from_size(left), from_size(right))
    result.owner.attributes[_OF_INTEGERS] = ir.UnitAttr.get()
    return result


def to_bits(value: ir.Value) -> ir.Value:
    """The 64 bits of a real as an index: how a kernel is given one."""
    i64, index = ir.IntegerType.get_signless(64), ir.IndexType.get()
    bits = ir.Operation.create("arith.bitcast", [i64], [value]).result
    return ir.Operation.create("arith.index_cast", [index], [bits]).result


def from_bits(bits: ir.Value) -> ir.Value:
    """The real that has these bits."""
    i64, f64 = ir.IntegerType.get_signless(64), ir.F64Type.get()
    integer = ir.Operation.create("arith.index_cast", [i64], [bits]).result
    return ir.Operation.create("arith.bitcast", [f64], [integer]).result


def real_of(bits: ir.Value) -> ir.Value:
    """The inverse of ``to_bits``."""
    return bits.owner.operands[0].owner.operands[0]


def sizes_in(value: ir.Value) -> Iterator[ir.Value]:
    """The index values that a scalar is computed from."""
    if value.type == ir.IndexType.get():
        yield value
    else:
        for operand in value.owner.operands:
            yield from sizes_in(operand)


def rebuild(value: ir.Value, size_of: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Emits the same arithmetic at the current insertion point, with ``size_of`` applied to its sizes."""
    if value.type == ir.IndexType.get():
        return size_of(value)
    op = value.owner
    attributes = dict(op.attributes.items())
    operands = [rebuild(v, size_of) for v in op.operands]
    return ir.Operation.create(op.name, [value.type], operands, attributes).result


def python(value: ir.Value, sizes: Sizes, text: Callable[[Expr], str]) -> str:
    """Python source of a real."""
    op: Any = value.owner
    if op.name == "arith.constant":
        return repr(ir.FloatAttr(op.attributes["value"]).value)
    if op.name == "arith.sitofp":
        return f"float({text(sizes.expr(op.operands[0].owner.operands[0]))})"
    if _OF_INTEGERS in op.attributes:
        left, right = (text(sizes.expr(v.owner.operands[0].owner.operands[0])) for v in op.operands)
    else:
        left, right = (python(v, sizes, text) for v in op.operands)
    return f"({left} {OPERATORS[op.name]} {right})"
