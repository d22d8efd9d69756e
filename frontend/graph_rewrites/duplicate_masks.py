"""Recognises equal boolean masks, so that what they select has the same unbacked size: ``x[~m] - y[~m]``.

Dynamo gives each mask an unbacked size of its own, even where two are the same computation, so that what they select
may differ in length. Here computations are numbered (value numbering): a mask that was computed before gets the size
that it had, and the final graph computes it once. The same holds of integers read from tensors (``batches[0].item()``).
Writes in between are tracked by storage; where the storage is unknown, the frame is analysed again with these masks not
merged (``split`` of `merge_same`).
"""

from __future__ import annotations

import functools
import operator
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.fake_tensors import is_fake, storage_of, version_of
from symshape.frontend.bridge.operators import is_python_function, overload_schemas

_FUNCTIONS = frozenset(
    {
        operator.lt,
        operator.le,
        operator.eq,
        operator.ne,
        operator.ge,
        operator.gt,
        operator.invert,
        operator.and_,
        operator.or_,
        operator.xor,
        operator.neg,
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.mod,
        operator.getitem,
        torch.logical_not,
        torch.logical_and,
        torch.logical_or,
        torch.logical_xor,
        torch.isnan,
        torch.isfinite,
        torch.isinf,
        torch.abs,
        torch.ne,
        torch.eq,
        torch.lt,
        torch.le,
        torch.gt,
        torch.ge,
        torch.any,
        torch.all,
        torch.sum,
    }
)
_METHODS = frozenset(
    {
        "lt",
        "le",
        "eq",
        "ne",
        "ge",
        "gt",
        "logical_not",
        "logical_and",
        "logical_or",
        "logical_xor",
        "isnan",
        "isfinite",
        "isinf",
        "abs",
        "any",
        "all",
        "sum",
        "bool",
        "float",
    }
)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_STATE = "_symshape_masks"
_NUMBER = "symshape_value"  # the name of the first node with this value, and how often its memory was written to then
_FIRST = "symshape_first"  # the mask whose length it has, the integer whose symbol


@dataclass
class _State:
    """The value numbering of one Dynamo graph. It lives as long as the graph."""

    first: dict[Any, torch.fx.Node] = field(default_factory=dict)  # the mask or number that a computation gave
    writes: Counter[int] = field(default_factory=Counter)  # by memory
    run: set[torch.fx.Node] = field(default_factory=set)


def run_numbered(graph: Any, node: torch.fx.Node, operands: Any, run: Callable[[], Any]) -> Any:
    """Runs ``run()``, which runs ``node`` of the Dynamo graph ``graph`` on the fake ``operands``. A result that is a
    mask that was computed before gets the unbacked size of that one."""
    root = getattr(getattr(graph, "root_tracer", None), "graph", None)
    if root is None:
        return run()
    state = root.__dict__.setdefault(_STATE, _State())
    key = _key(state, node)
    tensors = [t for t in pytree.tree_leaves(operands) if isinstance(t, torch.Tensor)]
    before = [_version(t) for t in tensors]
    result = run()
    counts = _counts_writes(node)
    for tensor, version in zip(tensors, before):
        if _memory(tensor) != [None] and not (counts and version is not None and _version(tensor) == version):
            if not (version is None and _pure(node)):
                state.writes.update(_memory(tensor))
    state.run.add(node)
    if key is not None and _memory(result) not in ([], [None]):
        _number(state, node, key, result)
    return result


def _key(state: _State, node: torch.fx.Node) -> Any:
    """The key of a computation: equal for equal computations. None for one that is not numbered."""
    if not _pure(node):
        return None

    def name(one: torch.fx.Node) -> Any:
        written = _written(state, one)
        first, made = one.meta.get(_NUMBER, ("", None))
        return (first, "as made") if written == made else (one.name, written)

    mapped: Any = torch.fx.node.map_arg((node.args, node.kwargs), name)
    # Branches are graphs of their own. The text tells 0, 0.0, -0.0 and True apart.
    return node.graph, node.op, node.target, repr(mapped)


def _number(state: _State, node: torch.fx.Node, key: Any, value: torch.Tensor) -> None:
    first = state.first.get(key)
    if first is None or first.prev.next is not first or not _alike(state, first, value):  # `first` may be erased
        node.meta[_NUMBER] = node.name, _written(state, value)
        state.first[key] = node
        return
    node.meta[_NUMBER] = first.meta[_NUMBER][0], _written(state, value)
    kind = "nonzero_memo" if value.dtype == torch.bool else "item_memo"  # what fake tensors call it
    if kind == "item_memo" and (value.dim() or value.dtype not in _INTEGERS):
        return
    seen = getattr(first.meta["example_value"], kind)
    if seen is None:
        state.first[key] = node  # nothing was selected or read by it yet
        return
    setattr(value, kind, seen)
    node.meta[_FIRST] = first


def _alike(state: _State, first: torch.fx.Node, value: torch.Tensor) -> bool:
    """Whether a node's traced value is unchanged since it was made, and has the type and sizes of ``value``. Dynamo
    does not keep the values of some nodes (``for row in x.tolist()``): these are not alike."""
    seen = first.meta.get("example_value")
    return (
        isinstance(seen, torch.Tensor)
        and _written(state, first) == first.meta[_NUMBER][1]
        and seen.dtype == value.dtype
        and str(seen.shape) == str(value.shape)
    )


# --- memory ----------------------------------------------------------------------------------------------------------


def _memory(value: Any) -> list[int | None]:
    """The storage of each tensor of a value, as a number; None for a tensor whose storage cannot be read."""
    tensors = [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    return [storage_of(t) if is_fake(t) and t.layout == torch.strided else None for t in tensors]


def _written(state: _State, of: Any) -> list[int]:
    memories = _memory(_value(of) if isinstance(of, torch.fx.Node) else of)
    return [-1 if memory is None else state.writes[memory] for memory in memories]


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else version_of(tensor)


def _pure(node: torch.fx.Node) -> bool:
    return node.target in (_FUNCTIONS if node.op == "call_function" else _METHODS if node.op == "call_method" else ())


def _counts_writes(node: torch.fx.Node) -> bool:
    """Whether a call increments the version counters of what it writes to: PyTorch's operators that return their
    mutated operands do; custom operators and ``_foreach_add_`` do not; a batch norm writes running statistics that its
    schema does not declare."""
    target: Any = node.target
    name = target if node.op == "call_method" else str(getattr(target, "__name__", ""))
    if "batch_norm" in name or "instance_norm" in name:
        return False
    if getattr(target, "__module__", None) == "_operator" or is_python_function(target):
        return True
    return (node.op == "call_method" or isinstance(target, types.BuiltinFunctionType)) and _returns_writes(name)


@functools.cache
def _returns_writes(name: str) -> bool:
    """Whether there is an ATen operator of this name with an overload that returns every tensor that it writes to."""
    packet = getattr(torch.ops.aten, name, None)  # of `__eq__` a method of the namespace
    schemas = overload_schemas(packet) if isinstance(packet, torch._ops.OpOverloadPacket) else []
    return bool(schemas) and all(_writes(s.arguments) == _writes(s.returns) for s in schemas)


def _writes(parts: Sequence[Any]) -> int:
    return sum(part.alias_info is not None and part.alias_info.is_write for part in parts)


# --- graphs ----------------------------------------------------------------------------------------------------------


def merge_same(gm: torch.fx.GraphModule, split: Callable[[torch.fx.Node], None]) -> None:
    """Replaces equal masks by the first of them, in place. ``split(mask)`` is called for a mask that cannot be merged:
    its size may differ, or the caller could observe the merge. It raises, and the frame is analysed again."""
    state = gm.graph.__dict__.pop(_STATE, None) or _State()
    for part in gm.modules():
        if isinstance(part, torch.fx.GraphModule):
            _merge_in(part, state, split)


def _merge_in(gm: torch.fx.GraphModule, state: _State, split: Callable[[torch.fx.Node], None]) -> None:
    present = set(gm.graph.nodes)
    changed = False
    for node in list(gm.graph.nodes):
        first = node.meta.pop(_FIRST, None)
        if first is None:
            continue
        if first not in present or not _one_mask(state, (first, node)):
            split(node)
        node.replace_all_uses_with(first)
        gm.graph.erase_node(node)
        changed = True
    if changed:
        gm.recompile()


def _one_mask(state: _State, masks: Sequence[torch.fx.Node]) -> bool:
    """Whether masks can be merged: none is written to, only the first may be returned, and no untracked write (custom
    kernels, loops) may touch the memory that they are computed from."""
    if any(_written(state, mask) != mask.meta[_NUMBER][1] for mask in masks):
        return False
    graph = masks[0].graph
    returned = {memory for node in graph.find_nodes(op="output") for memory in _around(node)}
    read = {memory for mask in masks for memory in _read(mask)}
    unseen = set(_unseen(state, graph))
    return None not in unseen and read.isdisjoint(unseen) and returned.isdisjoint(_memory(_value(masks[1])))


def _unseen(state: _State, graph: torch.fx.Graph) -> Iterator[int | None]:
    """The storages that a graph may write to without a version counter showing it. (Most bodies of higher-order
    operators were run on the same storages as their operands.)"""
    for node in graph.nodes:
        if None in _memory(_value(node)):
            yield None
        if not node.op.startswith("call") or node in state.run or node.target is operator.getitem:
            continue
        looked_at: set[int | None] = set()
        for one in node.all_input_nodes:
            body = getattr(graph.owning_module, str(one.target), None) if one.op == "get_attr" else None
            if isinstance(body, torch.fx.GraphModule):
                looked_at |= {m for given in body.graph.find_nodes(op="placeholder") for m in _memory(_value(given))}
                yield from _unseen(state, body.graph)
        yield from set(_around(node)) - looked_at


def _around(node: torch.fx.Node) -> list[int | None]:
    return [memory for one in (node, *node.all_input_nodes) for memory in _memory(_value(one))]


def _value(node: torch.fx.Node) -> Any:
    return node.meta.get("example_value")


def _read(node: torch.fx.Node) -> Iterator[int | None]:
    """The storages of a numbered computation and of all nodes that it depends on."""
    yield from _memory(_value(node))
    for one in node.all_input_nodes if _NUMBER in node.meta else ():
        yield from _read(one)
