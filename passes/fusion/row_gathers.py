"""Finds gathers of whole rows, whose index does not depend on the innermost dim, so that reads are contiguous."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from symshape.passes.fusion.compute_graph import FREE, HEAVY, Compute


def weight_of_row_gather(node: Compute) -> int | None:
    """Scalar operations per element of a gather of rows, whose index arithmetic is done once per row. None if the node
    is no gather of rows, or also computes something expensive."""
    if not node.captured or not node.sizes:
        return None
    body = node.op.regions[0].blocks[0]
    innermost = f"d{len(node.sizes) - 1}"
    along = {a for a, read in zip(body.arguments, node.inputs) if any(innermost in e.symbols for e in read.map)}
    weight = 0
    for view in body.operations:
        op = view.operation
        varies = any(operand in along for operand in op.operands)
        if op.name == "linalg.index":
            varies = _is_innermost(op, node)
        elif op.name == "tensor.extract":
            *rows, column = list(op.operands)[1:]
            if any(index in along for index in rows) or not _is_index(column, node):
                return None
        elif op.name in HEAVY and varies:
            return None
        if varies:
            along.update(op.results)
            weight += op.name not in FREE and op.name != "tensor.extract"
    return weight


def _is_index(value: ir.Value, node: Compute) -> bool:
    """Whether a value is the index along the innermost dim."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name == "linalg.index" and _is_innermost(owner, node)


def _is_innermost(index: Any, node: Compute) -> bool:
    return ir.IntegerAttr(index.attributes["dim"]).value == len(node.sizes) - 1
