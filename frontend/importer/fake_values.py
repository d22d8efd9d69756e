"""Imports fake values: their IR types and layouts, and new symbols in them."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch_mlir import ir

from symshape.artifact.element_types import DTYPES
from symshape.dialects.conditions import emit_condition
from symshape.dialects.sizes import Layout
from symshape.dialects.types import tensor_type
from symshape.frontend.bridge.shape_env import path_to_symbol, symbol_range, symbols_of
from symshape.frontend.importer.traced_symbols import SymbolRow, layout_of, size_expr
from symshape.frontend.importer.unbacked_offsets import start_offset
from symshape.prover.numbers.condition import equals
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import INT64_MAX

if TYPE_CHECKING:
    from symshape.frontend.importer.import_fx import Importer


@dataclass(frozen=True)
class Constant:
    """A Python object of the graph that is not a tensor (a subgraph): call templates refer to it by name."""

    value: Any


def type_of(value: Any) -> ir.Type:
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        if name not in DTYPES or value.layout != torch.strided:
            return ir.NoneType.get()
        return tensor_type([size_expr(s).as_int() for s in value.size()], DTYPES[name])
    if isinstance(value, torch.SymInt) or (isinstance(value, int) and not isinstance(value, bool)):
        return ir.IndexType.get()
    if isinstance(value, (torch.SymFloat, float)):
        return ir.F64Type.get()
    if isinstance(value, (torch.SymBool, bool)):
        return ir.IntegerType.get_signless(1)
    return ir.NoneType.get()


def emit_symbol(importer: Importer, row: SymbolRow) -> None:
    i64 = ir.IntegerType.get_signless(64)
    attributes = {
        "name": ir.StringAttr.get(row.name),
        "min": ir.IntegerAttr.get(i64, row.min),
        "max": ir.IntegerAttr.get(i64, row.max),
        "divisor": ir.IntegerAttr.get(i64, 1),
        "hint": ir.IntegerAttr.get(i64, row.hint),
        "source": ir.StringAttr.get(row.source),
        "binding": ir.StringAttr.get(row.binding),
    }
    op = ir.Operation.create("symshape.symbol", [ir.IndexType.get()], attributes=attributes)
    importer.sizes.define(op.result, Expr.symbol(row.name))


def unchecked(row: SymbolRow, values: list[Any]) -> SymbolRow:
    """The facts about an unbacked size that need no check: that it is at least 0, if an input has it as a size."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    is_size = any(size_expr(size) == Expr.symbol(row.name) for tensor in tensors for size in tensor.size())
    return replace(row, min=0 if is_size else -INT64_MAX, max=INT64_MAX)


def bind(importer: Importer, value: ir.Value, fake: Any, location: ir.Location) -> None:
    layout = layout_of(fake) if isinstance(fake, torch.Tensor) else None
    if layout is None or not isinstance(value.type, ir.RankedTensorType):
        return
    sizes, strides, offset = layout
    known = Layout(tuple(sizes), tuple(strides), offset)
    bind_layout(importer, value, known, str(fake.device), location, negated=fake.is_neg())


def bind_layout(
    importer: Importer,
    value: ir.Value,
    layout: Layout,
    device: str,
    location: ir.Location,
    *,
    negated: bool = False,
) -> None:
    """Emits the ``symshape.bind`` of a tensor, which gives its layout. ``negated``: its elements are those in memory
    times -1."""
    operands = [importer.sizes.value(e) for e in (*layout.sizes, *layout.strides, layout.offset)]
    attributes: dict[str, ir.Attribute] = {} if device == importer.device else {"device": ir.StringAttr.get(device)}
    if negated:
        attributes["negated"] = ir.UnitAttr.get()
    ir.Operation.create("symshape.bind", [], [value, *operands], attributes, loc=location)


ResultDims = set[tuple[int, str, int]]  # of sizes and strides: result, which of both, dim


def define_unbacked(importer: Importer, fakes: list[Any], kept: list[int], op: Any, results: list[Any]) -> ResultDims:
    """Symbols that first appear in a call's results: read off the results' sizes, or off an integer result, which they
    replace in ``results``. Returns where they are read."""
    dims_defined: ResultDims = set()
    for i, result in zip(kept, op.results):
        fake = fakes[i]
        if isinstance(fake, torch.SymInt):
            results[i] = _define_number(importer, result, size_expr(fake))
        layout = layout_of(fake) if isinstance(fake, torch.Tensor) else None
        for kind, exprs in (("size", layout[0]), ("stride", layout[1])) if layout else ():
            for dim, expr in enumerate(exprs):
                for name in expr.symbols:
                    if expr == Expr.symbol(name) and expr not in importer.sizes:
                        emit_unbacked(importer, result, name, kind, dim)
                        dims_defined.add((i, kind, dim))
    return dims_defined


def define_offset(importer: Importer, node: torch.fx.Node, fake: Any) -> None:
    """Defines a symbol that first occurs as the storage offset of a view, by arithmetic on the call's arguments."""
    layout = layout_of(fake) if isinstance(fake, torch.Tensor) else None
    if layout is None or layout[2].as_int() is not None or not is_new_symbol(importer, layout[2]):
        return
    offset = start_offset(node)
    if offset is not None:
        importer.sizes.define(importer.sizes.value(offset), layout[2])


def is_new_symbol(importer: Importer, expr: Expr) -> bool:
    return expr == Expr.symbol(next(iter(expr.symbols), "")) and expr not in importer.sizes


def _define_number(importer: Importer, result: ir.Value, expr: Expr) -> ir.Value:
    """Emits a new symbol for an integer that a library call computes."""
    if is_new_symbol(importer, expr):
        return emit_unbacked(importer, result, next(iter(expr.symbols)), "number")
    return result


def check_replaced(importer: Importer, node: torch.fx.Node, results: dict[int, ir.Value], defined: ResultDims) -> None:
    """Emits the check of an assertion on a size of a result (``torch._check(y.shape[0] == x.shape[0])``): the tracer
    has replaced the size's symbol and drops the assertion. The size is read, and checked before any use.

    ``results``: the values of the node's results, by position. ``defined``: where symbols are read as they are.
    """
    fakes: Any = node.meta.get("val")
    for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
        read = Expr.symbol(str(symbol))
        kind, positions = path_to_symbol(path)
        if kind not in ("size", "stride") or read in importer.sizes:
            continue
        *way, dim = positions
        fake = functools.reduce(operator.getitem, way, fakes)
        result = next(i for i, leaf in enumerate(pytree.tree_leaves(fakes)) if leaf is fake)
        if (result, kind, dim) in defined:
            continue
        emit_unbacked(importer, results[result], read.python(), kind, dim, anything=True)
        _expect_equal(importer, read, size_expr(getattr(fake, kind)()[dim]))


def check_item(importer: Importer, node: torch.fx.Node, source: ir.Value, expr: Expr) -> None:
    """As ``check_replaced``, for an ``item`` that is asserted to equal ``expr``."""
    for symbol in node.meta.get("unbacked_bindings") or ():
        read = Expr.symbol(str(symbol))
        if read not in importer.sizes:
            emit_unbacked(importer, source, read.python(), "item", anything=True)
            _expect_equal(importer, read, expr)


def _expect_equal(importer: Importer, read: Expr, expr: Expr) -> None:
    if all(Expr.symbol(name) in importer.sizes for name in expr.symbols):
        condition = emit_condition(importer.sizes, equals(read, expr))
        message = ir.StringAttr.get("runtime assertion failed")
        ir.Operation.create("symshape.expect_true", [], [condition], {"message": message})


def emit_unbacked(
    importer: Importer, tensor: ir.Value, name: str, kind: str, dim: int = 0, *, anything: bool = False
) -> ir.Value:
    """Emits an unbacked symbol. ``anything``: the tracer's facts about it have not been checked, and are not
    emitted."""
    symbol = symbols_of(importer.env).get(name)
    low, high = (None, None) if anything else symbol_range(importer.env, symbol)
    i64 = ir.IntegerType.get_signless(64)
    attributes = {
        "name": ir.StringAttr.get(name),
        "min": ir.IntegerAttr.get(i64, -INT64_MAX if low is None else low),
        "max": ir.IntegerAttr.get(i64, INT64_MAX if high is None else high),
        "kind": ir.StringAttr.get(kind),
        "dim": ir.IntegerAttr.get(i64, dim),
    }
    op = ir.Operation.create("symshape.unbacked_symbol", [ir.IndexType.get()], [tensor], attributes)
    importer.sizes.define(op.result, Expr.symbol(name))
    return op.result
