"""Calls that return a view at some sizes and a copy at others: ``contiguous``, ``reshape``, ``broadcast_tensors``.

One graph serves all sizes, and makes a copy. Where the program then writes to one of the two memories and reads the
other, eager mode's result depends on whether they are one, and where the caller has both, so do the caller's writes:
the frame is analysed again, with guards on the sizes that decide it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.fake_tensors import storage_of
from symshape.frontend.bridge.layouts import guard_strides_of_reshape
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes, holds_here, number_here
from symshape.frontend.graph_rewrites.aliasing import changed_operands, storages
from symshape.frontend.opaque_calls.frame_decisions import NO_FRAME, Reanalyse, call_site, current_frame

_UNCERTAIN = frozenset(
    {"contiguous", "reshape", "reshape_as", "flatten", "ravel", "expand", "expand_as", "broadcast_to"}
)
_OF_EACH = "broadcast_tensors"  # its results are views of one operand each


def guard_observable_views(gm: torch.fx.GraphModule) -> None:
    """Raises Reanalyse for the first such call of a Dynamo graph whose aliasing is observable."""
    frame = current_frame()
    if frame is NO_FRAME:
        return
    uses: list[_Uses] = []  # of all nodes, if there is such a call
    for i, node in enumerate(gm.graph.nodes):
        pairs = _copies_of_symbolic_sizes(node)
        if pairs and call_site(node) not in frame.decisions.views:
            uses = uses or [_uses_of(one) for one in gm.graph.nodes]
            if any(_shows(gm.graph, pair, uses[i + 1 :]) for pair in pairs):
                raise Reanalyse(call_site(node), "it returns a view at some sizes, which shows", "views")


def _copies_of_symbolic_sizes(node: torch.fx.Node) -> list[Set[Any]]:
    """Of such a call, pairs of storages: of an operand, and of the result that may be a view of it but is a copy."""
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    if name not in _UNCERTAIN | {_OF_EACH} or not node.args:
        return []
    operands = _operands(name, node.args)
    results = pytree.tree_leaves(node.meta.get("example_value"))
    given: list[Any] = [one.meta.get("example_value") if isinstance(one, torch.fx.Node) else None for one in operands]
    pairs: list[Set[Any]] = [{storage_of(x), storage_of(y)} for x, y in zip(given, results) if _has_symbolic_sizes(x)]
    return [pair for pair in pairs if len(pair) == 2]


def _operands(name: Any, args: Any) -> list[Any]:
    """The arguments of such a call that its results may be views of."""
    return pytree.tree_leaves(args) if name == _OF_EACH else [args[0]]


def _has_symbolic_sizes(x: Any) -> bool:
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or has_unbacked_sizes(x):
        return False
    return any(isinstance(number, torch.SymInt) for number in (*x.shape, *x.stride()))


@dataclass(frozen=True)
class _Uses:
    """The storages that a node reads, as operands, and those that it writes to."""

    read: Set[Any]
    written: Set[Any]


def _uses_of(node: torch.fx.Node) -> _Uses:
    read, written = node.all_input_nodes, changed_operands(node)
    return _Uses(*({one for value in values for one in storages(value)} for values in (read, written)))


def _shows(graph: torch.fx.Graph, pair: Set[Any], later: list[_Uses]) -> bool:
    """Whether it is observable that two storages are not one: the caller has both tensors, or a call writes to one of
    the two and the other is read later or returned. ``later``: what the nodes behind the copy do; the last one
    returns."""
    callers = {one for node in graph.find_nodes(op="placeholder") for one in storages(node)}
    if pair <= callers | later[-1].read:
        return True
    others: set[Any] = set()  # those that have to stay as they are
    for uses in later:
        written = uses.written & pair
        if written:
            others |= pair - written if len(written) == 1 else pair
        if others & callers or others & uses.read:
            return True
    return False


def guard_view_sizes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Guards on everything that decides whether such a call (of the function or method ``name``) returns views: which
    sizes are 1, which neighbouring dims are contiguous with each other, and whether a new shape splits what is not.
    It does not show whether nothing was copied: of an operand without elements that alone is guarded."""
    for x in _operands(name, args):
        if 0 in map(number_here, x.shape):
            holds_here(x.numel() == 0)
        elif (shape := _new_shape(name, args, kwargs)) is not None:
            guard_strides_of_reshape(x, shape)
        else:
            _guard_view_sizes(x)


def _new_shape(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any] | None:
    """The shape that such a call gives to its operand, which may hold one -1; None for calls that do not reshape."""
    given = (*args[1:], *kwargs.values())
    if name == "reshape":
        shape: Sequence[Any] = given[0] if isinstance(given[0], Sequence) else given
        return shape
    if name == "reshape_as":
        return given[0].shape if given else None
    return [args[0].numel()] if name == "ravel" or name == "flatten" and not given else None


def _guard_view_sizes(x: torch.Tensor) -> None:
    ask: Callable[..., bool] = lambda a, b: holds_here(operator.eq(a, b))  # noqa: E731
    dims = [(size, stride) for size, stride in zip(x.shape, x.stride()) if not ask(size, 1)]
    for (_, outer), (size, inner) in zip(dims, dims[1:]):
        ask(outer, inner * size)
    if dims:
        ask(dims[-1][1], 1)
