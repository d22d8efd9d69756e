"""FX graph to the ``imported`` stage: one ``host.call`` for each node, one ``symshape.bind`` for each tensor."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch_mlir import ir

from symshape.dialects.conditions import read_condition
from symshape.dialects.sizes import Sizes
from symshape.dialects.types import DTYPES, tensor_type
from symshape.frontend.constraints import emit_condition, import_constraints
from symshape.frontend.offsets import start_offset
from symshape.frontend.reals import emit_real
from symshape.frontend.symbols import INT64_MAX, SymbolRow, collect_symbols, layout_of, size_expr
from symshape.prover.expr import Expr
from symshape.prover.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.runtime.program import target_name
from symshape.runtime.torch_private import symbol_range, user_lines


@dataclass
class Imported:
    """The module, the Python objects that templates name as ``constant[i]``, and the nodes that carry no IR value."""

    module: ir.Module
    constants: list[Any]
    symbols: list[SymbolRow]


@dataclass
class Importer:
    """State of one import."""

    context: ir.Context
    env: Any
    sizes: Sizes
    constants: list[Any] = field(default_factory=list)
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)  # ir.Value | list of them | None
    files: dict[tuple[str, int], ir.Location] = field(default_factory=dict)

    def location(self, node: torch.fx.Node) -> ir.Location:
        """The user's innermost frame, named by the node."""
        lines = user_lines(node)
        if not lines:
            return ir.Location.name(node.name)
        file, line = lines[-1]
        place = self.files.get((file, line))
        if place is None:
            place = self.files[(file, line)] = ir.Location.file(file, line, 1)
        return ir.Location.name(node.name, place)


def import_graph(gm: torch.fx.GraphModule, context: ir.Context, env: Any, name: str = "main") -> Imported:
    """Imports a functional ATen graph whose nodes carry fake values in ``meta["val"]``.

    The function's arguments are the placeholders in order: tensors, ``index`` for SymInt, ``f64`` for SymFloat,
    ``i1`` for SymBool, ``none`` for anything that is not a tensor or number.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    fakes = [node.meta.get("val") for node in placeholders]
    with context, ir.Location.unknown(context):
        module = ir.Module.create()
        types = [_type_of(value) for value in fakes]
        with ir.InsertionPoint(module.body):
            function = ir.Operation.create(
                "func.func", regions=1,
                attributes={"sym_name": ir.StringAttr.get(name),
                            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, []))},
            )  # fmt: skip
        block = function.regions[0].blocks.append(*types)
        importer = Importer(context, env, Sizes(block))
        with ir.InsertionPoint(block):
            rows = collect_symbols(fakes, env)
            for row in rows:
                _emit_symbol(importer, row)
            for node, value, argument in zip(placeholders, fakes, block.arguments):
                # A size has one canonical value, whichever argument shows it.
                known = _known_size(importer, value) if isinstance(value, torch.SymInt) else None
                importer.values[node] = argument if known is None else known
                _bind(importer, argument, value, importer.location(node))
            import_constraints(importer.sizes, env)
            results = _import_nodes(importer, gm)
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
    return Imported(module, importer.constants, rows)


def _type_of(value: Any) -> ir.Type:
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


def _emit_symbol(importer: Importer, row: SymbolRow) -> None:
    i64 = ir.IntegerType.get_signless(64)
    attributes = {
        "name": ir.StringAttr.get(row.name), "min": ir.IntegerAttr.get(i64, row.min),
        "max": ir.IntegerAttr.get(i64, row.max), "divisor": ir.IntegerAttr.get(i64, 1),
        "hint": ir.IntegerAttr.get(i64, row.hint),
        "source": ir.StringAttr.get(row.source), "binding": ir.StringAttr.get(row.binding),
    }  # fmt: skip
    op = ir.Operation.create("symshape.symbol", [ir.IndexType.get()], attributes=attributes)
    importer.sizes.define(op.result, Expr.symbol(row.name))


def _bind(importer: Importer, value: ir.Value, fake: Any, location: ir.Location) -> None:
    layout = layout_of(fake) if isinstance(fake, torch.Tensor) else None
    if layout is None or not isinstance(value.type, ir.RankedTensorType):
        return
    sizes, strides, offset = layout
    operands = [importer.sizes.value(e) for e in (*sizes, *strides, offset)]
    ir.Operation.create("symshape.bind", [], [value, *operands], loc=location)


def _import_nodes(importer: Importer, gm: torch.fx.GraphModule) -> list[ir.Type]:
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            return _import_output(importer, node)
        with importer.location(node):
            if node.op == "get_attr":
                importer.values[node] = _import_constant(importer, gm, node)
            else:
                importer.values[node] = _import_call(importer, node)
    return []


def _import_constant(importer: Importer, gm: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    target: Any = gm
    for part in str(node.target).split("."):
        target = getattr(target, part)
    importer.constants.append(target)
    position = len(importer.constants) - 1
    if not isinstance(target, torch.Tensor):
        return _Constant(position)
    fake = node.meta.get("val", target)
    op = _call("symshape.constant", f"({position},)", [], [_type_of(fake)])
    _bind(importer, op.results[0], fake, op.location)
    return op.results[0]


@dataclass(frozen=True)
class _Constant:
    """A Python object of the graph that is no tensor (a subgraph): templates name it."""

    position: int


def _call(
    target: str,
    arguments: str,
    operands: Sequence[ir.Value],
    types: Sequence[ir.Type],
    indices: Sequence[int] | None = None,
) -> Any:
    attributes: dict[str, ir.Attribute] = {
        "target": ir.StringAttr.get(target),
        "arguments": ir.StringAttr.get(arguments),
    }
    if indices is not None:
        attributes["result_indices"] = ir.DenseI64ArrayAttr.get(list(indices))
    return ir.Operation.create("host.call", list(types), list(operands), attributes)


def _import_call(importer: Importer, node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return importer.values[source][node.args[1]]
    special = _SPECIAL.get(str(node.target))
    if special is not None:
        return special(importer, node)
    if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
        known = _known_size(importer, value)
        if known is not None:
            return known
    if isinstance(value, torch.SymFloat) and _is_scalar_operator(node.target):
        try:
            return emit_real(importer.sizes, value.node.expr)
        except UnsupportedExpr:
            pass
    if isinstance(value, torch.SymBool) and _is_scalar_operator(node.target):
        try:
            return emit_condition(importer.sizes, condition_from_sympy(value.node.expr))
        except (UnsupportedExpr, KeyError):
            pass
    return _import_library_call(importer, node, value)


def _known_size(importer: Importer, value: Any) -> ir.Value | None:
    """A size whose symbols are all defined is arithmetic on them, whatever node computes it."""
    try:
        expr = size_expr(value)
    except UnsupportedExpr:
        return None
    known = all(Expr.symbol(name) in importer.sizes for name in expr.symbols)
    return importer.sizes.value(expr) if known else None


def _is_scalar_operator(target: Any) -> bool:
    return getattr(target, "__module__", "") in ("_operator", "torch", "math")


def _import_library_call(importer: Importer, node: torch.fx.Node, value: Any) -> Any:
    operands: list[ir.Value] = []
    text = template(importer, node.args, node.kwargs, operands)
    tuple_result = isinstance(value, (tuple, list))
    fakes = list(value) if tuple_result else ([] if value is None else [value])
    kept = [i for i, fake in enumerate(fakes) if fake is not None]
    types = [_type_of(fakes[i]) for i in kept]
    op = _call(target_name(node.target), text, operands, types, kept if tuple_result else None)
    if _is_fresh(node.target):
        op.attributes["fresh"] = ir.UnitAttr.get()
    results: list[Any] = [None] * len(fakes)
    for i, result in zip(kept, op.results):
        results[i] = result
    _define_unbacked(importer, fakes, kept, op, results)
    _define_offset(importer, node, value)
    for i, result in zip(kept, op.results):
        _bind(importer, result, fakes[i], op.location)
    return results if tuple_result else (results[0] if results else None)


# Their schemas say nothing of it, but the result may be the operand's memory.
_VIEWS_UNDECLARED = frozenset({"aten._unsafe_view.default", "aten.lift.default"})


def _is_fresh(target: Any) -> bool:
    """Whether an op changes no operand and returns memory of its own, as PyTorch's schema for it declares."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or str(target) in _VIEWS_UNDECLARED:
        return False
    schema = target._schema
    return not any(item.alias_info is not None for item in (*schema.arguments, *schema.returns))


def _define_unbacked(importer: Importer, fakes: list[Any], kept: list[int], op: Any, results: list[Any]) -> None:
    """Symbols that first appear in a call's results: read off the results' sizes, or off an integer result, which they
    replace in ``results``."""
    for i, result in zip(kept, op.results):
        fake = fakes[i]
        if isinstance(fake, torch.SymInt):
            results[i] = _define_number(importer, result, size_expr(fake))
        layout = layout_of(fake) if isinstance(fake, torch.Tensor) else None
        for kind, exprs in (("size", layout[0]), ("stride", layout[1])) if layout else ():
            for dim, expr in enumerate(exprs):
                for name in expr.symbols:
                    if expr == Expr.symbol(name) and expr not in importer.sizes:
                        _emit_unbacked(importer, result, name, kind, dim)


def _define_offset(importer: Importer, node: torch.fx.Node, fake: Any) -> None:
    """A symbol that first appears as the offset of a view is arithmetic on what the call was given."""
    layout = layout_of(fake) if isinstance(fake, torch.Tensor) else None
    if layout is None or layout[2].as_int() is not None or not _is_new_symbol(importer, layout[2]):
        return
    offset = start_offset(node)
    if offset is not None:
        importer.sizes.define(importer.sizes.value(offset), layout[2])


def _is_new_symbol(importer: Importer, expr: Expr) -> bool:
    return expr == Expr.symbol(next(iter(expr.symbols), "")) and expr not in importer.sizes


def _define_number(importer: Importer, result: ir.Value, expr: Expr) -> ir.Value:
    """An integer that a library call computes: a new symbol."""
    if _is_new_symbol(importer, expr):
        return _emit_unbacked(importer, result, next(iter(expr.symbols)), "number")
    return result


def _emit_unbacked(importer: Importer, tensor: ir.Value, name: str, kind: str, dim: int = 0) -> ir.Value:
    symbol = next((s for s in importer.env.var_to_range if str(s) == name), None)
    low, high = symbol_range(importer.env, symbol)
    i64 = ir.IntegerType.get_signless(64)
    attributes = {
        "name": ir.StringAttr.get(name), "min": ir.IntegerAttr.get(i64, -INT64_MAX if low is None else low),
        "max": ir.IntegerAttr.get(i64, INT64_MAX if high is None else high),
        "kind": ir.StringAttr.get(kind), "dim": ir.IntegerAttr.get(i64, dim),
    }  # fmt: skip
    op = ir.Operation.create("symshape.unbacked_symbol", [ir.IndexType.get()], [tensor], attributes)
    importer.sizes.define(op.result, Expr.symbol(name))
    return op.result


def _import_item(importer: Importer, node: torch.fx.Node) -> Any:
    """``item``: an integer becomes a symbol (a new one where the tracer made one), a float a library call."""
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        expr = size_expr(value)
        name = next(iter(expr.symbols), "")
        if expr == Expr.symbol(name):
            if expr in importer.sizes:
                return importer.sizes.value(expr)
            source: Any = node.args[0]
            return _emit_unbacked(importer, importer.values[source], name, "item")
    return _import_library_call(importer, node, value)


def _import_assert(importer: Importer, node: torch.fx.Node) -> Any:
    """``_assert_scalar``: must hold; checked at run time unless proven."""
    condition = importer.values.get(node.args[0]) if isinstance(node.args[0], torch.fx.Node) else None
    if isinstance(condition, ir.Value) and str(condition.type) == "i1" and read_condition(importer.sizes, condition):
        message = ir.StringAttr.get(_own_message(str(node.args[1])) or "runtime assertion failed")
        ir.Operation.create("symshape.expect_true", [], [condition], {"message": message})
        return None
    return _import_library_call(importer, node, None)


def _own_message(text: str) -> str:
    """The message that came with an assertion; "" for the tracer's, which shows symbols of a graph before this one."""
    return "" if text.startswith("Runtime assertion failed for expression") else text


def _ignore(importer: Importer, node: torch.fx.Node) -> Any:
    return None


_SPECIAL: dict[str, Callable[[Importer, torch.fx.Node], Any]] = {
    "aten._local_scalar_dense.default": _import_item,
    "aten._assert_scalar.default": _import_assert,
    "aten.sym_constrain_range.default": _ignore,
    "aten.sym_constrain_range_for_size.default": _ignore,
    "aten._assert_tensor_metadata.default": _ignore,
}


def template(importer: Importer, args: Any, kwargs: Any, operands: list[ir.Value]) -> str:
    """The call text of a node; appends the operands that it names."""
    parts = [_text(importer, a, operands) for a in args]
    parts += [f"{k}={_text(importer, v, operands)}" for k, v in kwargs.items()]
    return f"({', '.join(parts)}{',' if len(parts) == 1 and not kwargs else ''})"


def _text(importer: Importer, value: Any, operands: list[ir.Value]) -> str:
    if isinstance(value, torch.fx.Node):
        held = importer.values.get(value)
        if isinstance(held, _Constant):
            return f"constant[{held.position}]"
        if isinstance(held, list):
            return "[" + ", ".join(_operand(v, operands) for v in held) + "]"
        return _operand(held, operands)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_text(importer, v, operands) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_text(importer, v, operands)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    importer.constants.append(value)
    return f"constant[{len(importer.constants) - 1}]"


def _operand(value: ir.Value | None, operands: list[ir.Value]) -> str:
    if value is None:
        return "None"
    operands.append(value)
    return f"${len(operands) - 1}"


def _import_output(importer: Importer, node: torch.fx.Node) -> list[ir.Type]:
    operands: list[ir.Value] = []
    items = node.args[0]
    text = template(importer, items if isinstance(items, (list, tuple)) else (items,), {}, operands)
    op = ir.Operation.create("func.return", [], operands)
    # Which position of the result each operand takes, and the Nones and literals between them.
    op.attributes["symshape.outputs"] = ir.StringAttr.get(text)
    return [v.type for v in operands]
