"""In-place updates at a data-dependent index (``cache[:, i] += row``) read a copy of the item instead of a view.

Before: %n = i.item(); %v = torch.select(%cache, 1, %n); %w = iadd(%v, %row); set_item(%cache, (:, %i), %w)
After:  %v = aten.index(%cache, [None, %i]);             %w = iadd(%v, %row); set_item(%cache, (:, %i), %w)

Python reads a view, changes it in place, and assigns it to the index that it was read at. A view at a number of the
host keeps the cache from being updated in its own memory, and the item would be written twice. A copy that a kernel
gathers at the index is equivalent if nothing else uses the view, and nothing writes to the index in between.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from symshape.frontend.decompositions.tensor_items import elements_of, selections, set_item
from symshape.frontend.graph_rewrites.aliasing import IN_PLACE


def copy_changed_items(gm: torch.fx.GraphModule) -> None:
    """Replaces the ``select`` of each such update by a gather, in place. ``gm``: a Dynamo graph."""
    for write in gm.graph.find_nodes(op="call_function", target=set_item):
        change = write.args[2] if len(write.args) == 3 else None
        if not isinstance(change, Node) or change.target not in IN_PLACE or len(change.users) > 1:
            continue
        views = list(_views(change.args[0]))
        if change is write.prev and views and _reads_the_same(views[-1], write):
            _read_a_copy(change, views)


def _views(node: Any) -> Iterator[Node]:
    """The view that is changed in place and the views that it is a view of, down to a ``select``; each has one user."""
    while isinstance(node, Node) and node.op == "call_function" and len(node.users) == 1:
        yield node
        key = node.args[1] if len(node.args) > 1 else None
        if node.target is not operator.getitem or not all(map(_is_whole, elements_of(key))):
            return
        node = node.args[0]


def _reads_the_same(select: Node, write: Node) -> bool:
    """Whether ``select`` reads the index that ``write`` writes at, with no write to the index tensor in between."""
    x, elements = write.args[0], elements_of(write.args[1])
    at = [one for one in elements if isinstance(one, Node)]
    if select.target is not torch.select or len(at) != 1:
        return False
    if select.kwargs or select.args[0] is not x or not isinstance(x, Node):
        return False
    _, dim, number = select.args
    index, like = _value(at[0]), _value(x)
    is_item = isinstance(number, Node) and number.target == "item" and number.args == (at[0],)
    if not is_item or not isinstance(index, torch.Tensor) or not isinstance(like, torch.Tensor):
        return False
    whole = all(_is_whole(one) for one in elements if one is not at[0])
    places = selections(like.dim(), tuple(index if one is at[0] else one for one in elements))
    return whole and [place for place, _ in places] == [dim] and not _may_change(at[0], number, write)


def _is_whole(one: Any) -> bool:
    return one is Ellipsis or (isinstance(one, slice) and one == slice(None))


def _value(node: Node) -> Any:
    return node.meta.get("example_value")


def _may_change(index: Node, read: Any, write: Node) -> bool:
    """Whether a node between the read and the write may write to the index: one with an operand of the index's type."""
    dtype, node = _value(index).dtype, read.next
    while node is not write:
        of_key = node.target in (set_item, torch.ops.aten.index.Tensor)  # which is only read
        given = [_value(one) for one in ([node.args[0]] if of_key else node.all_input_nodes)]
        if node.target != "item" and any(isinstance(one, torch.Tensor) and one.dtype == dtype for one in given):
            return True
        node = node.next
    return False


def _read_a_copy(change: Node, views: list[Node]) -> None:
    select = views[-1]
    args: Any = select.args  # of this form, by `_reads_the_same`
    x, dim, number = args
    graph = change.graph
    with graph.inserting_before(change):
        copy = graph.call_function(torch.ops.aten.index.Tensor, (x, [*[None] * dim, number.args[0]]))
    seen = _value(views[0])
    copy.meta = {**views[0].meta, "example_value": seen.new_empty(seen.shape)}
    change.args = (copy, *change.args[1:])
    for node in [*views, number]:
        if not node.users:
            graph.erase_node(node)
