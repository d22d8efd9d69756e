"""Finds out whether a program can distinguish a view from a copy: it writes to one of them, or returns both."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any, Final

import torch

from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.bridge.operators import schema_of
from symshape.frontend.decompositions.tensor_items import set_item


def is_view_observable(view: torch.fx.Node) -> bool:
    """Whether the program can tell if ``view``, a node of a Dynamo graph that returns views of its operands, is a
    copy."""
    results = set(storages(view))
    operands = {storage for node in view.all_input_nodes for storage in storages(node)}
    outside: set[Any] = set()
    returned: set[Any] = set()
    for node in view.graph.nodes:
        if any(
            storage in results or storage in operands for one in changed_operands(node) for storage in storages(one)
        ):
            return True
        if node.op == "placeholder":
            outside.update(storages(node))
        elif node.op == "output":
            returned.update(storage for one in node.all_input_nodes for storage in storages(one))
    return bool(results & returned and operands & (outside | returned))


def storages(node: torch.fx.Node) -> Iterator[Any]:
    """The storage of each tensor in a node's traced value, in a Dynamo graph."""
    for value in torch.utils._pytree.tree_leaves(node.meta.get("example_value")):
        if isinstance(value, torch.Tensor):
            yield storage_of(value)


def changed_operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The tensors that a call writes to; a superset where the schema does not say."""
    name = str(getattr(node.target, "__name__", node.target))
    schema = schema_of(node.target)
    in_place = name.endswith("_") and not name.endswith("__") if schema is None else schema.is_mutable
    in_place = in_place or _asks_for_it(node)
    is_call = node.op in ("call_function", "call_method")
    if not is_call or not (in_place or "out" in node.kwargs or node.target in _WRITING or name == "__setitem__"):
        return []
    return node.all_input_nodes


def _asks_for_it(node: torch.fx.Node) -> bool:
    """Whether a function like ``relu`` is called with ``inplace=True``, by name or by position."""
    try:
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # it has none, as what is written in C
        return bool(node.kwargs.get("inplace"))
    return bool(given.arguments.get("inplace"))


IN_PLACE: Final = frozenset(  # of elements, each by itself
    {
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.ifloordiv,
        operator.imod,
        operator.ipow,
        operator.iand,
        operator.ior,
        operator.ixor,
        operator.ilshift,
        operator.irshift,
    }
)
_WRITING: Final = IN_PLACE | {operator.setitem, operator.imatmul, set_item}
