"""Gathers and scatters among selected elements, or at indices that were selected.

Before: %g = gather(%a, 1, %i)        %a = index(%x, [%m]), %i = index(%y, [%m])
After:  %g = gather(%x, 1, where(%m, %y, 0))

An index where the mask is false may be out of range: it is replaced by 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from symshape.frontend.graph_rewrites.masks.graph_walk import Found, Rewriter
from symshape.frontend.graph_rewrites.masks.mask_space import Cannot, Compact, Uniform, normal_dims
from symshape.frontend.graph_rewrites.masks.node_writer import aten


def beside(r: Rewriter, node: Node) -> Found:
    """gather and scatter along a dim other than the selected one: (tensor, dim, index, source or number)."""
    operands: Any = node.args
    found = [r.compact(operand) for operand in (operands[0], *operands[2:])]
    first, index = found[0], found[1]
    if first is None or index is None or index.space is not first.space or index.dim != first.dim:
        raise Cannot("indices of other elements than those selected")
    rank = operands[0].meta["val"].dim()
    (dim,) = normal_dims(operands[1], rank)
    if dim == first.dim:
        raise Cannot("indices among the selected elements")
    indices = r.write.selected(index, rank, 0)
    rest = [r.whole(operand, rank, first.space, rank - 1 - first.dim) for operand in operands[3:]]
    made = r.write.call(node.target, first.full, first.dims(rank)[dim][0], indices, *rest, **node.kwargs)
    return Compact(made, first.space, first.dim)


def rows_of(position: int) -> Callable[[Rewriter, Node], Found]:
    """Rows of a whole tensor at selected indices, argument ``position`` of the call: embedding, index_select."""

    def rule(r: Rewriter, node: Node) -> Found:
        args: list[Any] = list(node.args)
        index = r.compact(args[position])
        if index is None or r.compact(args[0]) is not None:
            raise Cannot("selected elements are read at indices")
        rank = args[position].meta["val"].dim()
        before = normal_dims(args[1], args[0].meta["val"].dim())[0] if position == 2 else 0
        indices = r.write.selected(index, rank, 0)
        if position == 2 and index.space.rank > 1:
            return Compact(_rows_of_many(r, args[0], before, indices), index.space, before)
        args[position] = indices
        return Compact(r.write.call(node.target, *args, **node.kwargs), index.space, before + index.dim)

    return rule


def _rows_of_many(r: Rewriter, source: Node, dim: int, indices: Node) -> Node:
    """``index_select`` with an index tensor of several dims."""
    w, sizes = r.write, r.write.sizes(source)
    read = w.call(aten.index_select.default, source, dim, w.reshape(indices, [-1]))
    return w.reshape(read, [*sizes[:dim], *w.sizes(indices), *sizes[dim + 1 :]])


def embedding_gradient(r: Rewriter, node: Node) -> Found:
    """The gradient of an embedding: elements where the mask is false add 0 to row 0."""
    gradient, index, *rest = node.args
    found, indices = r.compact(gradient), r.compact(index)
    if found is None or indices is None or found.space is not indices.space or found.dim != indices.dim:
        raise Cannot("indices of other elements than those selected")
    rank = index.meta["val"].dim()  # type: ignore[union-attr]
    full = r.write.selected(found, rank + 1, 0)
    return Uniform(r.write.call(node.target, full, r.write.selected(indices, rank, 0), *rest))


RULES: dict[Any, Callable[[Rewriter, Node], Found]] = {
    aten.gather.default: beside,
    aten.scatter.value: beside,
    aten.scatter.src: beside,
    aten.scatter_add.default: beside,
    aten.embedding.default: rows_of(1),
    aten.index_select.default: rows_of(2),
    aten.embedding_dense_backward.default: embedding_gradient,
}
