"""Calls that return a view at some sizes and a copy at others: ``contiguous``, ``reshape``.

One graph serves all sizes, and makes a copy. Where the program then writes to one of the two memories and reads the
other, eager mode's result depends on whether they are one, and where the caller has both, so do the caller's writes:
the frame is analysed again, with guards on the sizes that decide it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes, holds_here
from symshape.frontend.graph_rewrites.aliasing import changed_operands, storages
from symshape.frontend.opaque_calls.frame_decisions import NO_FRAME, Reanalyse, call_site, current_frame

_UNCERTAIN = frozenset(
    {"contiguous", "reshape", "reshape_as", "flatten", "ravel", "expand", "expand_as", "broadcast_to"}
)


def guard_observable_views(gm: torch.fx.GraphModule) -> None:
    """Raises Reanalyse for the first such call of a Dynamo graph whose aliasing is observable."""
    frame = current_frame()
    if frame is NO_FRAME:
        return
    uses: list[_Uses] = []  # of all nodes, if there is such a call
    for i, node in enumerate(gm.graph.nodes):
        if _is_copy_of_symbolic_sizes(node) and call_site(node) not in frame.decisions.views:
            uses = uses or [_uses_of(one) for one in gm.graph.nodes]
            if _shows(node, uses[i + 1 :]):
                raise Reanalyse(call_site(node), "it returns a view at some sizes, which shows", "views")


def _is_copy_of_symbolic_sizes(node: torch.fx.Node) -> bool:
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    if name not in _UNCERTAIN or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return False
    x = node.args[0].meta.get("example_value")
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or has_unbacked_sizes(x):
        return False
    symbolic = any(isinstance(number, torch.SymInt) for number in (*x.shape, *x.stride()))
    return symbolic and not set(storages(node)) & set(storages(node.args[0]))


@dataclass(frozen=True)
class _Uses:
    """The storages that a node reads, as operands, and those that it writes to."""

    read: Set[Any]
    written: Set[Any]


def _uses_of(node: torch.fx.Node) -> _Uses:
    read, written = node.all_input_nodes, changed_operands(node)
    return _Uses(*({one for value in values for one in storages(value)} for values in (read, written)))


def _shows(copy: torch.fx.Node, later: list[_Uses]) -> bool:
    """Whether aliasing is observable: the caller has both tensors, or a call writes to one of the two and the other is
    read later or returned. ``later``: what the nodes behind the copy do; the last one returns."""
    (source,) = storages(copy.args[0])  # type: ignore[arg-type]
    pair = {source, *storages(copy)}
    callers = {one for node in copy.graph.find_nodes(op="placeholder") for one in storages(node)}
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


def guard_view_sizes(x: Any) -> None:
    """Guards on everything that decides whether ``contiguous`` or ``reshape`` of a tensor is a view: which sizes are 1,
    and which neighbouring dims are contiguous with each other."""
    ask: Callable[..., bool] = lambda a, b: holds_here(operator.eq(a, b))  # noqa: E731
    dims = [(size, stride) for size, stride in zip(x.shape, x.stride()) if not ask(size, 1)]
    for (_, outer), (size, inner) in zip(dims, dims[1:]):
        ask(outer, inner * size)
    if dims:
        ask(dims[-1][1], 1)
