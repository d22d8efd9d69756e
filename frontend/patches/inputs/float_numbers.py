"""Floats that are symbols are operands of kernels, or stay numbers of library calls: no graph for each value."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import sympy
import torch
from torch._dynamo.symbolic_convert import TensorifyState
from torch._functorch._aot_autograd import graph_compile
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes._tensorify_python_scalars import SUPPORTED_OPS
from torch.utils._sympy.symbol import SymT, symbol_is_type

from symshape.frontend.patches.inputs.float_operands import write_out
from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten
_ITEM = aten._local_scalar_dense.default
_NUMBERS = (torch.SymFloat, torch.SymInt, torch.SymBool)
_PRODUCTS = (
    aten.addmm.default,
    aten.addmv.default,
    aten.addbmm.default,
    aten.baddbmm.default,
    aten.addr.default,
)
_CALLS = (aten.histc.default, aten.renorm.default, aten.embedding_renorm.default)  # library calls with numbers
_KEPT = "symshape_number"  # the traced value of a copy, in its meta data


def floats_stay_numbers(changes: Changes) -> None:
    """Keeps AOTAutograd from making constants of floats, or from analysing the frame again to do so.

    It makes tensors of the floats that operators of its table take, so that kernels read them, and constants of all
    others (of ``uniform_``). Here those of draws and products, and those that sizes are made of (``int(e * n)``), are
    read from the tensor that Dynamo has made of them, as the items of any tensor are. A float that nothing reads is an
    unread input. ``clamp``, ``pow`` and ``scalar_tensor`` are in the table too, ``full`` expands a
    tensor on a CPU, and what takes a number alone is written with operators of the table.
    """
    changes.items(SUPPORTED_OPS, _MORE)
    changes.wrap(graph_compile, "tensorify_python_scalars", _with_numbers)


def _clamp(x: Any, *bounds: Any) -> Any:
    """``aten.clamp`` with a lower and an upper bound, of which some may be numbers or None."""
    for bound, op in zip(bounds, (aten.clamp_min, aten.clamp_max)):
        if bound is not None:
            x = (op.default if isinstance(bound, int | float) else op.Tensor)(x, bound)
    return x


_MORE: dict[Any, Callable[..., Any]] = {
    aten.clamp.default: _clamp,
    aten.clamp_min.default: aten.clamp_min.Tensor,
    aten.clamp_max.default: aten.clamp_max.Tensor,
    aten.pow.Tensor_Scalar: aten.pow.Tensor_Tensor,
    aten.scalar_tensor.default: lambda number: number,
}


@functools.cache
def _with_numbers(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def tensorify_python_scalars(gm: GraphModule, shape_env: Any, fake_mode: Any) -> None:
        kept: dict[Node, Node] = {}
        for node in list(gm.graph.nodes):
            if node.target is aten.full.default and _is_on_cpu(node) and _is_float(node.args[1]):
                _expand(node, fake_mode)
            elif node.op == "call_function" and not _takes_numbers(node) and any(map(_is_float, _arguments(node))):
                write_out(node, fake_mode)
        given = _given_numbers(gm.graph)
        unlike = {symbol for _, one in given if _is_integer(one) and not _is_size(one) for symbol in _symbols(one)}
        in_sizes = set()
        for node, number in given:
            is_size = _is_size(number) and unlike.isdisjoint(_symbols(number))
            if is_size or _takes_numbers(node):
                node.replace_input_with(number, _copied(gm.graph, number, kept))
                in_sizes |= _symbols(number) if is_size else set()
        numbers = {symbol for number in kept for symbol in _symbols(number)} | _unread_floats(gm.graph, shape_env)
        values = {symbol: hint for symbol, hint in shape_env.backed_var_to_val.items() if symbol not in numbers}
        with _sizes_made_of(in_sizes):
            original(gm, SimpleNamespace(backed_var_to_val=values), fake_mode)
        for number, copy in kept.items():
            copy.meta["val"] = copy.meta.pop(_KEPT)
            copy.target = number.target

    return tensorify_python_scalars


def _unread_floats(graph: Graph, shape_env: Any) -> set[Any]:
    """The symbols of floats that no call with an effect on the results reads (the momentum of a batch norm without
    running statistics, the rate of a dropout in eval mode): no constants, for the graph is the same for all values."""
    live: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in live or node.op == "output" or (node.op == "call_function" and node.is_impure()):
            live |= {node, *node.all_input_nodes}
    read = {symbol for node in live for symbol in _symbols(node) | _symbols_of_sizes(node)}
    floats = {symbol for symbol in shape_env.backed_var_to_val if symbol_is_type(symbol, SymT.FLOAT)}
    return floats - read - shape_env.replacements.keys()


def _given_numbers(graph: Graph) -> list[tuple[Node, Node]]:
    """The calls that take numbers made of floats, each with such a number. Calls that make numbers of them are none."""
    takers = [node for node in graph.nodes if not _is_number(node)]
    return [(node, one) for node in takers for one in node.all_input_nodes if _is_made_of_floats(one)]


@contextlib.contextmanager
def _sizes_made_of(symbols: set[Any]) -> Iterator[None]:
    """While entered, PyTorch's pass lets sizes of tensors be made of these symbols of floats: it asks whether they are
    constants already before it makes them constants."""
    added = {str(symbol) for symbol in symbols} - TensorifyState.force_specializations
    TensorifyState.force_specializations |= added
    try:
        yield
    finally:
        TensorifyState.force_specializations -= added


@dataclass(frozen=True)
class _Hidden:
    """In place of the function that reads an item, while PyTorch's pass runs."""

    function: Any

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def _is_on_cpu(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_cpu


def _expand(node: Node, fake_mode: Any) -> None:
    """Makes of ``full`` a copy of an expanded number: the number is then a tensor that a kernel reads."""
    size, number = node.args
    value = node.meta["val"]
    with node.graph.inserting_before(node):
        scalar = node.graph.call_function(aten.scalar_tensor.default, (number,), {"dtype": value.dtype})
        whole = node.graph.call_function(aten.expand.default, (scalar, size))
    with fake_mode:
        scalar.meta["val"] = torch.empty((), dtype=value.dtype)
        whole.meta["val"] = scalar.meta["val"].expand(value.shape)
    node.target, node.args, node.kwargs = aten.clone.default, (whole,), {"memory_format": torch.contiguous_format}


def _takes_numbers(node: Node) -> bool:
    """Whether a call takes floats as numbers at no cost: it draws, is a library call anyway, or copies a number to
    another device. In other calls a constant is part of a kernel, where a number makes it a library call."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target is aten.scalar_tensor.default:  # the pass gives it its type, on a CPU
        return not _is_on_cpu(node)
    return torch.Tag.nondeterministic_seeded in node.target.tags or node.target in (*_PRODUCTS, *_CALLS)


def _is_made_of_floats(node: Node) -> bool:
    return node.op == "call_function" and any(symbol_is_type(symbol, SymT.FLOAT) for symbol in _symbols(node))


def _is_number(node: Node) -> bool:
    return isinstance(node.meta.get("val"), _NUMBERS)


def _is_integer(node: Node) -> bool:
    return isinstance(node.meta["val"], torch.SymInt)


def _is_size(node: Node) -> bool:
    """Whether it is an integer that is computed from its symbols as Python computes it, or made of such integers."""
    if _is_integer(node):
        return _is_rounded_alike(node)
    return node.target is not _ITEM and all(_is_size(one) for one in node.all_input_nodes if _is_made_of_floats(one))


def _is_rounded_alike(node: Node) -> bool:
    """Whether the expressions of a number and of the numbers that it is made of have the operations of the program:
    sympy makes ``10 - 10 * e`` of ``10 * (1 - e)``, whose integer part may be another one."""
    value, inputs = node.meta["val"], node.all_input_nodes
    if not isinstance(value, torch.SymFloat) or node.target is _ITEM:
        return all(_is_rounded_alike(one) for one in inputs if _is_made_of_floats(one))
    function = _EXACT.get(node.target)
    if function is None or type(value.node.expr).__name__ not in function:
        return False
    operands = [_operand(one) for one in node.args]
    if node.target is operator.sub:
        operands[1] = -operands[1]
    made_of = {_operand(one) for one in value.node.expr.args}
    return made_of == set(operands) and all(_is_rounded_alike(one) for one in inputs if _is_made_of_floats(one))


_EXACT: Mapping[Any, tuple[str, ...]] = {  # function -> expressions of it
    operator.add: ("Add",),
    operator.sub: ("Add",),
    operator.mul: ("Mul",),
    operator.truediv: ("FloatTrueDiv", "IntTrueDiv"),
    torch.sym_float: ("ToFloat",),
}


def _operand(value: Any) -> Any:
    """The expression of an operand, of an integer as of a float."""
    number = value.meta["val"] if isinstance(value, Node) else value
    expr = number.node.expr if isinstance(number, _NUMBERS) else sympy.sympify(number)
    expr = expr.args[0] if type(expr).__name__ == "ToFloat" else expr
    return sympy.Float(expr) if expr.is_Number else expr


def _is_float(value: Any) -> bool:
    return isinstance(value, Node) and _is_made_of_floats(value)


def _arguments(node: Node) -> tuple[Any, ...]:
    return (*node.args, *node.kwargs.values())


def _symbols(node: Node) -> set[Any]:
    """The symbols of a number; those of what is no number are not asked for."""
    value = node.meta.get("val")
    return value.node.expr.free_symbols if isinstance(value, _NUMBERS) else set()


def _symbols_of_sizes(node: Node) -> set[Any]:
    value = node.meta.get("val")
    sizes: Any = value.shape if isinstance(value, torch.Tensor) else ()
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}


def _copied(graph: Graph, number: Node, kept: dict[Node, Node]) -> Node:
    """A copy of a number, and of the numbers that it is made of, which PyTorch's pass does not see."""
    if number not in kept:
        parts = {one: _copied(graph, one, kept) for one in filter(_is_made_of_floats, number.all_input_nodes)}
        with graph.inserting_after(number):
            made = graph.node_copy(number, lambda one: parts.get(one, one))
        made.meta = {**number.meta, _KEPT: number.meta["val"]}
        del made.meta["val"]
        made.target = _Hidden(number.target) if number.target is _ITEM else number.target
        kept[number] = made
    return kept[number]
