"""Imports an FX graph as stage ``imported``: one ``host.call`` for each node, one ``symshape.bind`` for each tensor."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch_mlir import ir

from symshape.artifact.compiled_program import target_name
from symshape.artifact.relations import OF_ARGUMENT, OWN
from symshape.dialects.accessors import (
    function_name,
    mark_call,
    mark_subgraph,
    set_output_template,
    set_reason_kept,
    set_returned_relations,
    set_written_arguments,
)
from symshape.dialects.conditions import emit_condition, read_condition
from symshape.dialects.host import CallOp
from symshape.dialects.sizes import Sizes
from symshape.errors import CompileError
from symshape.frontend.bridge.aot_autograd import MADE_OF_INPUT, OTHER
from symshape.frontend.bridge.operators import returns_views
from symshape.frontend.bridge.symbolic_sizes import expression_of
from symshape.frontend.bridge.traced_values import fill_values
from symshape.frontend.graph_rewrites.collectives import communicates
from symshape.frontend.graph_rewrites.draw_order import draws
from symshape.frontend.importer.fake_values import (
    Constant,
    bind,
    check_item,
    check_replaced,
    define_offset,
    define_unbacked,
    emit_symbol,
    emit_unbacked,
    is_new_symbol,
    type_of,
    unchecked,
)
from symshape.frontend.importer.import_attention import import_attention
from symshape.frontend.importer.import_cond import import_cond
from symshape.frontend.importer.import_loops import import_associative_scan, import_scan, import_while
from symshape.frontend.importer.returned_tensors import relations
from symshape.frontend.importer.shape_env_constraints import import_constraints, import_facts
from symshape.frontend.importer.subgraphs import ImportFunction, Kept, Subgraph, copied, layout_of_copy
from symshape.frontend.importer.sym_floats import emit_real
from symshape.frontend.importer.traced_symbols import SymbolRow, collect_symbols, size_expr
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.runtime.torch_c import user_lines


@dataclass
class Imported:
    """The module, the Python objects that templates name as ``constant[i]``, and the nodes that carry no IR value."""

    module: ir.Module
    constants: list[Any]
    symbols: list[SymbolRow]


@dataclass
class Importer:
    """State of the import of one function. All functions of a module share ``module``, ``constants`` and ``files``."""

    module: ir.Module
    env: Any
    sizes: Sizes
    constants: list[Any] = field(default_factory=list)
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)  # ir.Value | list of them | Constant | None
    files: dict[tuple[str, int], ir.Location] = field(default_factory=dict)
    kind: str = "inference"  # of the graph
    written: Sequence[int] = ()  # for each result of the graph the argument that it is copied to (`written_inputs`)
    device: str = "cpu"  # that kernels run on
    collectives: int = 0  # of the function, so far

    def mark(self, call: Any, node: torch.fx.Node, *, fresh: bool = False, checked: bool = False) -> None:
        """Sets the attributes of a call for its effects."""
        number = self.collectives if communicates(node) else None
        self.collectives += number is not None
        mark_call(call, fresh=fresh, draws=draws(node), checked=checked, collective=number)

    def free_name(self, wanted: str) -> str:
        """A name for a function that the module does not have yet."""
        taken = {function_name(op) for op in self.module.body.operations}
        names = (f"{wanted}{suffix}" for suffix in ("", *(f"_{i}" for i in range(1, len(taken) + 1))))
        return next(name for name in names if name not in taken)

    def location(self, node: torch.fx.Node) -> ir.Location:
        """The user's innermost frame, named by the node."""
        lines = user_lines(node)
        if not lines:
            return ir.Location.name(node.name)
        file, line = lines[-1]
        found = self.files.get((file, line))
        if found is None:
            found = self.files[(file, line)] = ir.Location.file(file, line, 1)
        return ir.Location.name(node.name, found)


def import_graph(
    gm: torch.fx.GraphModule,
    context: ir.Context,
    env: Any,
    kind: str = "inference",
    device: str = "cpu",
    written: Sequence[int] = (),
) -> Imported:
    """Imports a functional ATen graph whose nodes have fake values in ``meta["val"]``.

    The function's arguments are the placeholders in order: tensors, ``index`` for SymInt, ``f64`` for SymFloat, ``i1``
    for SymBool, ``none`` for everything else. ``kind``: "inference", "forward" or "backward"; a backward graph is only
    called after a forward graph of the same ShapeEnv, which has checked the guards. ``device``: of the graph's kernels;
    binds of tensors on other devices are marked. ``written``: for each result the argument that the caller copies it to
    (``written_inputs``). CompileError for a graph that cannot be imported.
    """
    with context, ir.Location.unknown(context):
        module = ir.Module.create()
        block, fakes = _create_function(module, gm, "main")
        importer = Importer(module, env, Sizes(block), kind=kind, device=device, written=written)
        rows = collect_symbols(fakes, env, offsets_needed=kind != "backward" or _reads_offsets(gm))
        guards_hold = kind == "backward"
        _import_body(importer, gm, fakes, rows, functools.partial(import_constraints, importer.sizes, env, guards_hold))
    return Imported(module, importer.constants, rows)


def _reads_offsets(gm: torch.fx.GraphModule) -> bool:
    return any("storage_offset" in str(node.target) or "as_strided" in str(node.target) for node in gm.graph.nodes)


def _create_function(module: ir.Module, gm: torch.fx.GraphModule, name: str) -> tuple[ir.Block, list[Any]]:
    """A function of the module with an empty body, and the fake values of its arguments."""
    fill_values(gm)
    fakes = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    types = [type_of(value) for value in fakes]
    with ir.InsertionPoint(module.body):
        function = ir.Operation.create(
            "func.func",
            regions=1,
            attributes={
                "sym_name": ir.StringAttr.get(name),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            },
        )
    return function.regions[0].blocks.append(*types), fakes


def _import_body(
    importer: Importer,
    gm: torch.fx.GraphModule,
    fakes: list[Any],
    rows: list[SymbolRow],
    facts: Callable[[], None],
    subgraph: Subgraph | None = None,
) -> None:
    """Emits symbols, layouts of arguments, what ``facts`` emits, then the nodes. ``subgraph``: the subgraph, if it is
    one."""
    block = importer.sizes.block
    with ir.InsertionPoint(block):
        for row in rows:
            emit_symbol(importer, row)
        for node, value, argument in zip(gm.graph.find_nodes(op="placeholder"), fakes, block.arguments):
            # A size has one canonical value, whichever argument shows it.
            known = _known_size(importer, value) if isinstance(value, torch.SymInt) else None
            importer.values[node] = argument if known is None else known
            bind(importer, argument, value, importer.location(node))
        facts()
        results = _import_nodes(importer, gm, subgraph)
    arguments = [argument.type for argument in block.arguments]
    block.owner.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, results))


def _import_subgraph(outer: Importer, subgraph: Subgraph) -> None:
    """Adds the function of a subgraph. Facts about symbols are those of the whole graph and its predicate; of an
    unbacked size only that it is a size: other facts come from checks that may not have run."""
    block, fakes = _create_function(outer.module, subgraph.graph, subgraph.name)
    importer = Importer(outer.module, outer.env, Sizes(block), outer.constants, files=outer.files, device=outer.device)
    mark_subgraph(block.owner)
    rows = [unchecked(row, fakes) if row.hint < 0 else row for row in collect_symbols(fakes, outer.env)]
    facts = functools.partial(import_facts, importer.sizes, outer.env, subgraph.assumed)
    _import_body(importer, subgraph.graph, fakes, rows, facts, subgraph)


def _import_nodes(importer: Importer, gm: torch.fx.GraphModule, subgraph: Subgraph | None) -> list[ir.Type]:
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            return _import_output(importer, node) if subgraph is None else _import_subgraph_output(importer, subgraph)
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
    if not isinstance(target, torch.Tensor):
        return Constant(target)
    fake = node.meta.get("val", target)
    op = CallOp("symshape.constant", f"({_position(importer, target)},)", [], [type_of(fake)]).operation
    bind(importer, op.results[0], fake, op.location)
    return op.results[0]


def _position(importer: Importer, constant: Any) -> int:
    importer.constants.append(constant)
    return len(importer.constants) - 1


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
            return emit_real(importer.sizes, expression_of(value))
        except UnsupportedExpr:
            pass
    if isinstance(value, torch.SymBool) and _is_scalar_operator(node.target):
        try:
            return emit_condition(importer.sizes, condition_from_sympy(expression_of(value)))
        except (UnsupportedExpr, KeyError, OverflowError):
            pass
    return _import_library_call(importer, node, value)


def _known_size(importer: Importer, value: Any) -> ir.Value | None:
    """A size over defined symbols, emitted as arithmetic on them instead of as the node that computes it; else None."""
    try:
        expr = size_expr(value)
        known = all(Expr.symbol(name) in importer.sizes for name in expr.symbols)
        return importer.sizes.value(expr) if known else None
    except (UnsupportedExpr, OverflowError):
        return None


def _is_scalar_operator(target: Any) -> bool:
    return getattr(target, "__module__", "") in ("_operator", "torch", "math")


def _import_library_call(importer: Importer, node: torch.fx.Node, value: Any, reason: str = "") -> Any:
    operands: list[ir.Value] = []
    text = template(importer, node.args, node.kwargs, operands)
    tuple_result = isinstance(value, (tuple, list, dict))
    nested = tuple_result and (isinstance(value, dict) or any(isinstance(fake, (tuple, list, dict)) for fake in value))
    fakes = pytree.tree_leaves(value) if tuple_result else ([] if value is None else [value])
    kept = [i for i, fake in enumerate(fakes) if fake is not None]
    types = [type_of(fakes[i]) for i in kept]
    target = target_name(node.target)
    indices = kept if tuple_result else None
    call = CallOp(f"flat.{target}" if nested else target, text, operands, types, result_indices=indices)
    op = call.operation
    importer.mark(op, node, fresh=_is_fresh(node.target), checked=_is_custom(node.target))
    if reason:
        set_reason_kept(op, reason)
    results: list[Any] = [None] * len(fakes)
    for i, result in zip(kept, op.results):
        results[i] = result
    defined = define_unbacked(importer, fakes, kept, op, results)
    check_replaced(importer, node, dict(zip(kept, op.results)), defined)
    define_offset(importer, node, value)
    for i, result in zip(kept, op.results):
        bind(importer, result, fakes[i], op.location)
    if nested:
        return pytree.tree_unflatten(results, pytree.tree_structure(value))
    return results if tuple_result else (results[0] if results else None)


# Their schemas say nothing of it, but the result may be the operand's memory.
_VIEWS_UNDECLARED = frozenset({"aten._unsafe_view.default", "aten.lift.default"})
_FRESH = frozenset({"symshape.draw.default", "prims.convert_element_type.default"})  # of other namespaces than aten


def _is_fresh(target: Any) -> bool:
    """Whether an op changes no operand and returns memory of its own, as PyTorch's schema for it declares."""
    if str(target) in _FRESH:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or str(target) in _VIEWS_UNDECLARED:
        return False
    return not returns_views(target)


def _is_custom(target: Any) -> bool:
    """Whether an operator's fake results come from a user's rule, or were inferred by running it."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace not in ("aten", "prims", "prim", "symshape")


def _import_item(importer: Importer, node: torch.fx.Node) -> Any:
    """``item``: an integer becomes a symbol (a new one where the tracer made one), a float a library call."""
    value = node.meta.get("val")
    if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
        return _import_library_call(importer, node, value)
    expr = size_expr(value)
    source: Any = node.args[0]
    if is_new_symbol(importer, expr):
        return emit_unbacked(importer, importer.values[source], next(iter(expr.symbols)), "item")
    known = _known_size(importer, value)
    if known is None:
        return _import_library_call(importer, node, value)
    check_item(importer, node, importer.values[source], expr)
    return known


def _import_assert(importer: Importer, node: torch.fx.Node) -> Any:
    """``_assert_scalar``: must hold; checked at run time unless proven."""
    condition = importer.values.get(node.args[0]) if isinstance(node.args[0], torch.fx.Node) else None
    if isinstance(condition, ir.Value) and str(condition.type) == "i1" and read_condition(importer.sizes, condition):
        message = ir.StringAttr.get(_own_message(str(node.args[1])) or "runtime assertion failed")
        ir.Operation.create("symshape.expect_true", [], [condition], {"message": message})
        return None
    return _import_library_call(importer, node, None)


def _own_message(text: str) -> str:
    """The user's message of an assertion; "" for the tracer's, which has symbols of an earlier graph."""
    return "" if text.startswith("Runtime assertion failed for expression") else text


def _import_subgraphs(
    import_operator: Callable[[Importer, torch.fx.Node, ImportFunction], list[Any]],
) -> Callable[[Importer, torch.fx.Node], Any]:
    """An import rule of an operator with subgraphs: they become functions; or it is a library call, with the reason."""

    def imported(importer: Importer, node: torch.fx.Node) -> Any:
        try:
            return import_operator(importer, node, _import_subgraph)
        except Kept as kept:
            return _import_library_call(importer, node, node.meta.get("val"), reason=str(kept))

    return imported


def _ignore(importer: Importer, node: torch.fx.Node) -> Any:
    return None


_SPECIAL: dict[str, Callable[[Importer, torch.fx.Node], Any]] = {
    "cond": _import_subgraphs(import_cond),
    "while_loop": _import_subgraphs(import_while),
    "while_loop_stack_output": _import_subgraphs(import_while),
    "scan": _import_subgraphs(import_scan),
    "associative_scan": _import_subgraphs(import_associative_scan),
    "map_impl": _import_subgraphs(import_scan),
    "flex_attention": _import_subgraphs(import_attention),
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
        if isinstance(held, Constant):
            return f"constant[{_position(importer, held.value)}]"
        return _held(held, operands)
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
    return f"constant[{_position(importer, value)}]"


def _held(value: Any, operands: list[ir.Value]) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_held(v, operands) for v in value) + "]"
    return _operand(value, operands)


def _operand(value: ir.Value | None, operands: list[ir.Value]) -> str:
    if value is None:
        return "None"
    operands.append(value)
    return f"${len(operands) - 1}"


def _import_output(importer: Importer, node: torch.fx.Node) -> list[ir.Type]:
    operands: list[ir.Value] = []
    items = node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0],)
    related = relations(node.graph, importer.kind)
    texts: dict[torch.fx.Node, str] = {}  # what is returned twice is one object
    parts: list[str] = []
    told: list[str] = []  # of each operand
    places = _copied_to(items, importer.written)
    related = {**related, **{one: OF_ARGUMENT for one, place in places.items() if place == MADE_OF_INPUT}}
    written: list[int] = []  # of each operand
    for item in items:
        one = item if isinstance(item, torch.fx.Node) else None
        text = texts.get(one) if one is not None else None
        parts.append(_text(importer, item, operands) if text is None else text)
        if one is not None:
            texts[one] = parts[-1]
        told += [related.get(one, OWN)] * (len(operands) - len(told))
        written += [max(OTHER, places.get(one, OTHER))] * (len(operands) - len(written))
    op = ir.Operation.create("func.return", [], operands)
    # Which position of the result each operand takes, and the Nones and literals between them.
    set_output_template(op, f"({', '.join(parts)}{',' if len(parts) == 1 else ''})")
    set_returned_relations(op, told)
    set_written_arguments(op, written)
    return [v.type for v in operands]


def _copied_to(items: Sequence[Any], written: Sequence[int]) -> dict[Any, int]:
    """For each returned node the argument that it is copied to, or the mark of a value made of an input; without nodes
    that are returned in another role too."""
    found: dict[torch.fx.Node, set[int]] = {}
    for item, place in zip(items, written):
        if isinstance(item, torch.fx.Node):
            found.setdefault(item, set()).add(place)
    only = {node: max(places) for node, places in found.items() if OTHER not in places}
    return {node: place for node, place in only.items() if len(found[node] - {MADE_OF_INPUT}) <= 1}


def _import_subgraph_output(importer: Importer, subgraph: Subgraph) -> list[ir.Type]:
    """Emits the return. A value carried to the next step of a loop gets the layout of the argument for it."""
    returned = []
    for position, item in enumerate(subgraph.returned):
        value = importer.values[item] if isinstance(item, torch.fx.Node) else item
        value = importer.sizes.value(value) if type(value) is int else value
        if not isinstance(value, ir.Value):
            raise CompileError(
                f"result {position} of its function is neither a tensor nor a size",
                next_step="return tensors and integers from the functions of a branch or loop",
            )
        like = subgraph.like[position] if position < len(subgraph.like) else None
        fake = item.meta["val"] if isinstance(item, torch.fx.Node) else item
        returned.append(copied(importer, value, layout_of_copy(importer, fake, like), fake))
    ir.Operation.create("func.return", [], returned)
    return [value.type for value in returned]
