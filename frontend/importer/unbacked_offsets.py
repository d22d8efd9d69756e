"""Storage offsets of views that start at a data-dependent position: unbacked symbols that no input binds."""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.importer.traced_symbols import layout_of, size_expr
from symshape.prover.numbers.expr import Expr, maximum, minimum

_SLICE, _SELECT = torch.ops.aten.slice.Tensor, torch.ops.aten.select.int


def start_offset(node: torch.fx.Node) -> Expr | None:
    """The storage offset of a slice or a select, from its start; None for any other call.

    As in eager mode: a negative start counts from the end; a slice then clamps it to the dim, while a select out of
    range is an error of its own.
    """
    source = node.args[0] if node.args else None
    if node.target not in (_SLICE, _SELECT) or not isinstance(source, torch.fx.Node):
        return None
    layout = layout_of(source.meta["val"])
    if layout is None:
        return None
    sizes, strides, offset = layout
    dim, start = (_number(_argument(node, i)) for i in (1, 2))
    position = dim.as_int() or 0
    size = sizes[position]
    start = start + size * maximum(0, minimum(1, -start))  # the last factor is 1 where start < 0, else 0
    if node.target is _SLICE:
        start = minimum(maximum(start, 0), size)
    return offset + start * strides[position]


def _argument(node: torch.fx.Node, position: int) -> Any:
    return node.args[position] if len(node.args) > position else 0


def _number(value: Any) -> Expr:
    if isinstance(value, torch.fx.Node):
        value = value.meta["val"]
    return Expr.const(0) if value is None else size_expr(value)
