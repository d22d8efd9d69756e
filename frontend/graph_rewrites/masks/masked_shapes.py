"""Views and factories that have the number of selected elements as a size.

Before: %n = sym_size(%a, 0); %e = expand(%t, [%n])          %a = index(%x, [%m])
After:  %e = expand(%t, [size of %m]), as the full form
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from symshape.frontend.graph_rewrites.masks.graph_walk import Found, Rewriter
from symshape.frontend.graph_rewrites.masks.mask_space import (
    Cannot,
    Compact,
    Joined,
    Scalar,
    Space,
    Uniform,
    normal_dims,
    size_of,
)
from symshape.frontend.graph_rewrites.masks.masked_reads import of_positions
from symshape.frontend.graph_rewrites.masks.masked_reductions import numbered
from symshape.frontend.graph_rewrites.masks.node_writer import aten, prims

Rule = Callable[[Rewriter, Node], Found]


def _source(r: Rewriter, node: Node) -> tuple[Compact, int]:
    source: Any = node.args[0]
    found = r.compact(source)
    if found is None:
        raise Cannot("its shape depends on the number of selected elements")
    return found, source.meta["val"].dim()


def same_shape(r: Rewriter, node: Node) -> Found:
    found, _ = _source(r, node)
    return Compact(r.write.call(node.target, found.full, *node.args[1:], **node.kwargs), found.space, found.dim)


def unsqueeze(r: Rewriter, node: Node) -> Found:
    found, rank = _source(r, node)
    dim = int(node.args[1]) % (rank + 1)  # type: ignore[arg-type, call-overload]
    before = dim <= found.dim
    full = dim if before else dim + found.space.rank - 1
    return Compact(r.write.unsqueeze(found.full, full), found.space, found.dim + before)


def squeeze(r: Rewriter, node: Node) -> Found:
    found, rank = _source(r, node)
    named = len(node.args) > 1
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    dims = normal_dims(node.args[1], rank) if named else [d for d in range(rank) if size_of(value, d) == 1]
    gone = [d for d in dims if d != found.dim and size_of(value, d) == 1]
    if found.dim in dims and named and node.meta["val"].dim() != rank - len(gone):
        raise Cannot("it removes the dim of the selected elements")
    mapped = found.dims(rank)
    full = r.write.call(aten.squeeze.dims, found.full, [mapped[d][0] for d in gone])
    return Compact(full, found.space, found.dim - sum(d < found.dim for d in gone))


def permute(r: Rewriter, node: Node) -> Found:
    found, rank = _source(r, node)
    name, args = str(node.target), node.args
    if name == "aten.permute.default":
        order = normal_dims(args[1], rank)
    else:
        order = list(range(rank))
        first, second = normal_dims(args[1:3], rank) if name == "aten.transpose.int" else (0, rank - 1)
        order[first], order[second] = order[second], order[first]
    mapped = found.dims(rank)
    full = r.write.call(aten.permute.default, found.full, [f for d in order for f in mapped[d]])
    return Compact(full, found.space, order.index(found.dim))


def along_another(r: Rewriter, node: Node) -> Found:
    """Operations along one dim, their second argument, that is not the selected one: select, slice, flip."""
    found, rank = _source(r, node)
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    (at,) = normal_dims(dim, rank)
    if at == found.dim:
        raise Cannot("it is along the selected elements")
    if any(r.scalar(arg) is not None for arg in node.all_input_nodes):
        raise Cannot("its shape depends on the number of selected elements")
    full = r.write.call(node.target, found.full, found.dims(rank)[at][0], *node.args[2:], **node.kwargs)
    gone = str(node.target) == "aten.select.int" and at < found.dim
    return Compact(full, found.space, found.dim - gone)


def pieces(r: Rewriter, node: Node) -> Found:
    """``split`` and ``unbind`` along a dim other than the selected one."""
    found, rank = _source(r, node)
    unbinds = str(node.target) == "aten.unbind.int"
    position = 1 if unbinds else 2
    dim: Any = node.args[position] if len(node.args) > position else 0
    (at,) = normal_dims(dim, rank)
    if at == found.dim:
        raise Cannot("it is along the selected elements")
    full = found.dims(rank)[at][0]
    args = [full] if unbinds else [node.args[1], full]
    made = r.write.call(node.target, found.full, *args)
    count = len(node.meta["val"])
    shift = unbinds and at < found.dim
    return [Compact(r.write.call(operator.getitem, made, k), found.space, found.dim - shift) for k in range(count)]


def cat(r: Rewriter, node: Node) -> Found:
    tensors: Any = node.args[0]
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    rank = node.meta["val"].dim()
    (at,) = normal_dims(dim, rank)
    found = [r.compact(t) for t in tensors]
    joined = next((f.dim for f in found if f is not None), None)
    if joined == at:
        return Joined(tuple(t if f is None else f for t, f in zip(tensors, found)), at)
    if any(f is None or f.space is not found[0].space or f.dim != found[0].dim for f in found):  # type: ignore[union-attr]
        raise Cannot("selected elements are joined with others")
    first: Any = found[0]
    full = r.write.call(aten.cat.default, [f.full for f in found], first.dims(rank)[at][0])  # type: ignore[union-attr]
    return Compact(full, first.space, first.dim)


def _counting_dim(r: Rewriter, node: Node, sizes: Sequence[Any]) -> tuple[int, Space] | None:
    """The one dim of a result that counts selected elements."""
    value = node.meta["val"]
    spaces = [r.counted(value.size(d) if size == -1 else size) for d, size in enumerate(sizes)]
    found = [(d, space) for d, space in enumerate(spaces) if space is not None]
    if len(found) > 1:
        raise Cannot("two dims of selected elements")
    return found[0] if found else None


def expand(r: Rewriter, node: Node) -> Found:
    source: Any = node.args[0]
    sizes: Any = node.args[1]
    rank, own = len(sizes), source.meta["val"].dim()
    found = r.compact(source)
    if found is not None:
        dim, space = found.dim + rank - own, found.space
        if (
            sizes[dim] != -1
            and r.counted(sizes[dim]) is not space
            and str(node.meta["val"].size(dim)) != str(source.meta["val"].size(found.dim))
        ):
            raise Cannot("its shape depends on the number of selected elements")
        target = r.full_sizes([*sizes[:dim], -1, *sizes[dim + 1 :]], space, dim)
        return Compact(r.write.call(aten.expand.default, found.full, target), space, dim)
    counting = _counting_dim(r, node, sizes)
    if counting is None:
        raise Cannot("its shape depends on the number of selected elements")
    dim, space = counting
    full = r.whole(source, rank, space, rank - 1 - dim)
    return Compact(r.write.call(aten.expand.default, full, r.full_sizes(sizes, space, dim)), space, dim)


def view(r: Rewriter, node: Node) -> Found:
    found, rank = _source(r, node)
    source: Any = node.args[0]
    sizes: Any = node.args[1]
    value, before = node.meta["val"], source.meta["val"]
    of_rows = r.of_rows.get(found.space)
    if rank == 1 and of_rows is not None and [str(n) for n in value.size()] == of_rows[1]:
        return Compact(found.full, of_rows[0], 0)  # the rows that were flattened
    wanted = str(before.size(found.dim))
    for dim in range(value.dim()):
        # A view of the selected elements where they are: what is before them and behind them is regrouped by itself.
        if str(value.size(dim)) == wanted and _numel(value, 0, dim) == _numel(before, 0, found.dim):
            own = [size if size != -1 or d == dim else _own_size(value, d) for d, size in enumerate(sizes)]
            target = r.full_sizes(own, found.space, dim)
            return Compact(r.write.reshape(found.full, target), found.space, dim)
    if value.dim() == 1:
        return _flatten(r, found, before)
    raise Cannot("a reshape merges the selected dim with others")


def _own_size(value: torch.Tensor, d: int) -> int:
    size = size_of(value, d)
    return -1 if size is None else size


def _numel(value: torch.Tensor, start: int, end: int) -> str:
    total: Any = 1
    for size in value.size()[start:end]:
        total = total * size
    return str(total)


def _flatten(r: Rewriter, found: Compact, rows: torch.Tensor) -> Found:
    """Flattens selected rows: the result's elements are selected by the mask, expanded over all dims."""
    w, rank = r.write, rows.dim()
    if found.dim:
        raise Cannot("a reshape merges the selected dim with others")
    sizes = w.sizes(found.full)
    key = found.space.origin, str(found.full.meta["val"].size())
    if key not in r.broadcast:
        r.broadcast[key] = w.call(aten.expand.default, w.mask_of(found.space, rank - 1), sizes)
    space = r.space_of(r.broadcast[key])
    r.of_rows[space] = found.space, [str(n) for n in rows.size()]
    return Compact(found.full, space, 0)


def full(r: Rewriter, node: Node) -> Found:
    sizes: Any = node.args[0]
    number = r.scalar(node.args[1])
    counting = _counting_dim(r, node, sizes)
    if counting is None:
        if number is None or any(r.scalar(size) is not None for size in sizes):
            raise Cannot("its shape depends on the number of selected elements")
        return Uniform(r.write.call(aten.expand.default, r.write.cast(number.tensor, node.meta["val"].dtype), sizes))
    dim, space = counting
    target = r.full_sizes(sizes, space, dim)
    if number is not None:
        made = r.write.call(aten.expand.default, r.write.cast(number.tensor, node.meta["val"].dtype), target)
    else:
        made = r.write.call(node.target, target, node.args[1], **node.kwargs)
    return Compact(made, space, dim)


def iota(r: Rewriter, node: Node) -> Found:
    """``arange(number of selected elements)``: the rank of each of them."""
    found = r.scalar(node.args[0])
    kwargs = node.kwargs
    if found is None or found.counts is None:
        raise Cannot("its shape depends on the number of selected elements")
    w = r.write
    made = numbered(found.counts, r)
    step, start = kwargs.get("step", 1), kwargs.get("start", 0)
    if not isinstance(step, int) or not isinstance(start, int):
        raise Cannot("its shape depends on the number of selected elements")
    made = w.call(aten.add.Tensor, w.call(aten.mul.Tensor, made, step), start)
    return Compact(w.cast(made, node.meta["val"].dtype), found.counts, 0)


def alias_of_number(r: Rewriter, node: Node) -> Found:
    found = r.scalar(node.args[0])
    return None if found is None else Scalar(found.tensor, found.counts)


RULES: dict[Any, Rule] = {
    aten.alias.default: same_shape,
    aten.detach.default: same_shape,
    aten.clone.default: same_shape,
    aten._to_copy.default: same_shape,
    aten.lift_fresh_copy.default: same_shape,
    aten.unsqueeze.default: unsqueeze,
    aten.squeeze.default: of_positions(squeeze),
    aten.squeeze.dim: of_positions(squeeze),
    aten.squeeze.dims: of_positions(squeeze),
    aten.permute.default: permute,
    aten.transpose.int: permute,
    aten.t.default: permute,
    aten.select.int: of_positions(along_another),
    aten.slice.Tensor: along_another,
    aten.unbind.int: of_positions(pieces),
    aten.split.Tensor: pieces,
    aten.split_with_sizes.default: pieces,
    aten.cat.default: cat,
    aten.expand.default: expand,
    aten.view.default: of_positions(view),
    aten._unsafe_view.default: of_positions(view),
    aten.reshape.default: of_positions(view),
    aten.full.default: full,
    prims.iota.default: iota,
    torch.sym_int: alias_of_number,
}
