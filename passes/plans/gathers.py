"""Reads at computed indices that are known after all: a gather at an ``arange`` has an address like a load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects.accessors import combiner_of, index_map
from symshape.dialects.affine_maps import read_exprs
from symshape.dialects.plans import PlanSizes
from symshape.prover.numbers.expr import Expr

_ARITHMETIC: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "arith.addi": Expr.__add__,
    "arith.subi": Expr.__sub__,
    "arith.muli": Expr.__mul__,
}
_SAME: Final = frozenset({"arith.index_cast", "arith.index_castui", "symshape.check_index"})


def gathers(generic: Any, dims: Callable[[int], list[Expr]], sizes: PlanSizes) -> Iterator[tuple[ir.Value, Expr, int]]:
    """(tensor, address, rank of the level) of each ``tensor.extract`` in the body of a generic whose indices are
    expressions over dims and symbols; ``dims``: rank -> the level's. Indices out of range do not matter here: what is
    planned is tested at the launch, and the kernel checks its indices."""
    for op in generic.regions[0].blocks[0].operations:
        if op.operation.name != "tensor.extract":
            continue
        tensor, *indices = op.operands
        found = [_index(value, dims, sizes) for value in indices]
        if tensor in sizes.layouts and all(index is not None for index in found):
            strides = sizes.layouts[tensor].strides
            address = sum((i * s for i, s in zip(found, strides, strict=True) if i is not None), Expr.const(0))
            yield tensor, address, _rank(generic)


def _index(value: ir.Value, dims: Callable[[int], list[Expr]], sizes: PlanSizes) -> Expr | None:
    if isinstance(value, ir.BlockArgument):
        return _argument(ir.BlockArgument(value), dims, sizes)
    op = value.owner
    if op.parent.name == "func.func":
        return sizes.expr(value)
    if op.name in _SAME:
        return _index(op.operands[0], dims, sizes)
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return Expr.const(ir.IntegerAttr(attribute).value) if isinstance(attribute, ir.IntegerAttr) else None
    if op.name == "linalg.index":
        return dims(_rank(op.parent))[ir.IntegerAttr(op.attributes["dim"]).value]
    if op.name == "affine.apply":
        map_ = index_map(op)
        operands = [_index(operand, dims, sizes) for operand in op.operands]
        known = [operand for operand in operands if operand is not None]
        return read_exprs(map_.results, known[: map_.n_dims], known[map_.n_dims :])[0] if known == operands else None
    if op.name == "arith.select":
        return _wrapped(op, dims, sizes)
    if op.name in _ARITHMETIC:
        left, right = (_index(operand, dims, sizes) for operand in op.operands)
        return None if left is None or right is None else _ARITHMETIC[op.name](left, right)
    return None


def _argument(value: ir.BlockArgument, dims: Callable[[int], list[Expr]], sizes: PlanSizes) -> Expr | None:
    """An argument of the function, or an element of what another generic computed at the same point."""
    op = value.owner.owner
    if op.operation.name == "func.func":
        return sizes.expr(value) if str(value.type) == "index" else None
    operand = op.operands[value.arg_number]
    producer = None if isinstance(operand, ir.BlockArgument) else operand.owner
    if producer is None or producer.name != "linalg.generic" or combiner_of(producer):
        return None
    if _rank(producer) != _rank(op):
        return None
    number = list(producer.results).index(operand)
    *_, end = producer.regions[0].blocks[0].operations
    return _index(end.operands[number], dims, sizes)


def _wrapped(op: Any, dims: Callable[[int], list[Expr]], sizes: PlanSizes) -> Expr | None:
    """i of ``i < 0 ? i + n : i``: what is known is seldom negative."""
    condition, _, index = op.operands
    if isinstance(condition, ir.BlockArgument) or condition.owner.name != "arith.cmpi":
        return None
    return _index(index, dims, sizes) if condition.owner.operands[0] == index else None


def _rank(generic: Any) -> int:
    return len(ir.ArrayAttr(generic.attributes["iterator_types"]))
