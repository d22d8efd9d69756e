"""Assignments to the elements that a mask selects.

Before: %r = index_put(%y, [%m], %v)                 v: a number, something that broadcasts, f(%y)[%m], or [u]
After:  %r = where(%m, %v, %y)

With ``accumulate``: where(%m, %y + %v, %y). A value with one element per selected one is read at the element's rank,
cumsum(%m) - 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from symshape.frontend.graph_rewrites.masks.graph_walk import Found, Rewriter
from symshape.frontend.graph_rewrites.masks.mask_space import Cannot, Compact, Space, Uniform
from symshape.frontend.graph_rewrites.masks.masked_reads import broadcast, mask_in, within
from symshape.frontend.graph_rewrites.masks.node_writer import aten, prims


def index_put(r: Rewriter, node: Node) -> Found:
    target, indices, value = node.args[:3]
    accumulate = bool(node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False))
    assert isinstance(target, Node) and isinstance(indices, Sequence) and isinstance(value, Node)
    found = mask_in(r, indices, target.meta["val"])
    if found is None:
        return _at_indices(r, target, indices, value, accumulate)
    space, dim = found
    r.own(node, space)
    inner = within(r, target, space, dim)
    old = target if inner is None else inner.full
    # Among the elements of an outer selection a mask is one dim, whatever it is in the full form.
    mask_dims = space.origin.meta["val"].dim()
    trailing = target.meta["val"].dim() - dim - mask_dims
    new = r.whole(value, value.meta["val"].dim(), space, trailing)
    made = _chosen(r, space, old, new, trailing, accumulate)
    return Uniform(made) if inner is None else Compact(made, inner.space, inner.dim)


def _chosen(r: Rewriter, space: Space, old: Node, new: Node, trailing: int, accumulate: bool) -> Node:
    w = r.write
    if accumulate and not _is_zero(old):
        new = w.call(aten.add.Tensor, old, new)
    return w.call(aten.where.self, w.mask_of(space, trailing), new, old)


def _is_zero(node: Node) -> bool:
    return bool(node.target is aten.full.default and node.args[1] == 0)


def _at_indices(r: Rewriter, target: Node, indices: Sequence[Any], value: Node, accumulate: bool) -> Found:
    """Accumulation at indices that are themselves selected: elements where the mask is false add 0 at index 0."""
    compacts = [r.compact(i) for i in indices if i is not None]
    selected = [c for c in compacts if c is not None]
    if not selected and r.compact(value) is None and r.compact(target) is None:
        return None
    if not accumulate or r.compact(target) is not None or not selected:
        raise Cannot("selected elements are written to indices")
    space, rank = selected[0].space, max(i.meta["val"].dim() for i in indices if i is not None)
    given = [d for d, i in enumerate(indices) if i is not None]
    one_dim = all(i.meta["val"].dim() == 1 for i in indices if i is not None)
    if not one_dim or any(c is None or c.space is not space for c in compacts) or given[-1] - given[0] >= len(given):
        raise Cannot("selected elements are written to indices of several dims")
    positions = [
        i if i is None else r.write.selected(Compact(r.whole(i, rank, space, 0), space, 0), 1, 0) for i in indices
    ]
    after = target.meta["val"].dim() - given[-1] - 1
    full = r.whole(value, value.meta["val"].dim(), space, after)
    mask = r.write.mask_of(space, after)
    added = r.write.call(aten.where.self, mask, full, r.write.scalar(0, full.meta["val"]))
    return Uniform(r.write.call(aten.index_put.default, target, positions, added, True))


def masked_scatter(r: Rewriter, node: Node) -> Found:
    """Writes the elements of the source, in order, at the selected positions."""
    target, mask, source = node.args[:3]
    assert isinstance(target, Node) and isinstance(mask, Node) and isinstance(source, Node)
    if r.compact(target) is not None or r.compact(mask) is not None:
        raise Cannot("a selection among the elements of another one")
    old, spread, _ = broadcast(r, target, mask)
    space = r.space_of(spread)
    r.own(node, space)
    inner = r.compact(source)
    if inner is not None and inner.space is space and source.meta["val"].dim() == 1:
        new = inner.full
    elif inner is not None:
        raise Cannot("elements of one mask are given to those of another")
    else:
        new = _in_order(r, source, space)
    return Uniform(r.write.call(aten.where.self, space.mask, new, old))


def masked_scatter_backward(r: Rewriter, node: Node) -> Found:
    """The gradient of the source: element i is the gradient at the i-th selected position, 0 for unused elements."""
    gradient, mask, sizes = node.args
    assert isinstance(gradient, Node) and isinstance(mask, Node)
    if any(
        r.values.get(operand) is not None and not isinstance(r.values[operand], Uniform)
        for operand in node.all_input_nodes
    ):
        raise Cannot("a selection among the elements of another one")
    value, w = node.meta["val"], r.write
    whole, spread, _ = broadcast(r, gradient, mask)
    space = r.space_of(spread)
    r.own(node, space)
    total: Any = 1
    for size in sizes:  # type: ignore[union-attr]
        total = size if total == 1 else w.call(operator.mul, total, size)
    read = r.selected_first(Compact(whole, space, 0), total)
    index = w.call(
        prims.iota.default, total, start=0, step=1, dtype=torch.int64, device=value.device, requires_grad=False
    )
    written = w.call(aten.lt.Tensor, index, w.count(space))
    made = w.call(aten.where.self, written, read, w.scalar(0, value))
    return Uniform(made if value.dim() == 1 else w.reshape(made, list(sizes)))  # type: ignore[arg-type]


def _in_order(r: Rewriter, source: Node, space: Space) -> Node:
    """The source, flattened, spread so that element i is at the i-th selected position; the source may be longer."""
    w = r.write
    flat = source if source.meta["val"].dim() == 1 else w.reshape(source, [-1])
    size = w.sizes(flat)[0]
    given = w.scalar(size, torch.empty((), dtype=torch.int64, device=space.mask.meta["val"].device))
    if size == 0:
        raise Cannot("values for selected elements, although none is selected")
    enough = w.call(aten.le.Tensor, w.count(space), given)
    w.require(enough, "Number of elements of source < number of ones in mask")
    at = w.call(aten.clamp.default, w.call(aten.sub.Tensor, w.ranks(space), 1), 0)
    at = w.call(aten.minimum.default, at, w.call(aten.sub.Tensor, given, 1))
    read = w.call(aten.index_select.default, flat, 0, at)
    return read if space.rank == 1 else w.reshape(read, list(space.sizes))


INDEXED = (aten.index_put.default, aten._unsafe_index_put.default)
SOURCES = frozenset({*INDEXED, aten.masked_scatter.default, aten.masked_scatter_backward.default})

RULES: dict[Any, Callable[[Rewriter, Node], Found]] = {
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.masked_scatter.default: masked_scatter,
    aten.masked_scatter_backward.default: masked_scatter_backward,
}
