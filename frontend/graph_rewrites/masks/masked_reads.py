"""Selections: indexing by a mask, ``masked_select``, ``nonzero`` and gathers at its result.

Before: %a = index(%x, [None, %m])        x: [n, k, j], m: [k] -> [n, u, j]
After:  %x is the full form of %a: its dim 1 over the elements of m
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
    Positions,
    Scalar,
    Space,
    Uniform,
    normal_dims,
)
from symshape.frontend.graph_rewrites.masks.node_writer import aten


def mask_in(r: Rewriter, indices: Sequence[Any], of: torch.Tensor) -> tuple[Space, int] | None:
    """The space of the one mask among indices, and the dim that it indexes: a bool tensor, or all columns of its
    ``nonzero``, next to each other."""
    given = [(d, index) for d, index in enumerate(indices) if index is not None]
    if not given:
        return None
    dim, first = given[0]
    if len(given) == 1 and first.meta["val"].dtype == torch.bool and first.meta["val"].dim():
        mask = first.meta["val"]
        if not all(r.same_size(of.size(dim + k), mask.size(k)) for k in range(mask.dim())):
            raise Cannot("the mask is not known to be as large as what it selects from")
        return r.space_of(first), dim
    columns = [_column_of(r, index) for _, index in given]
    found = columns[0]
    if found is None or len(given) != found[0].rank:
        return None
    space = found[0]
    wanted = [(dim + k, (space, k)) for k in range(space.rank)]
    if [(d, column) for (d, _), column in zip(given, columns)] != wanted:
        return None
    mask = space.mask.meta["val"]
    same = space.origin is space.mask and all(r.same_size(of.size(dim + k), mask.size(k)) for k in range(space.rank))
    return (space, dim) if same else None


def _column_of(r: Rewriter, index: Node) -> tuple[Space, int] | None:
    """(space, k) if an index is column k of a mask's positions, else None."""
    found = r.compact(index)
    column = found.full.meta.get("symshape.column") if found is not None else None
    return None if found is None or column is None else (found.space, column)


def index(r: Rewriter, node: Node) -> Found:
    source, indices = node.args[0], node.args[1]
    assert isinstance(source, Node) and isinstance(indices, Sequence)
    if isinstance(r.values.get(source), Positions):
        raise Cannot("positions of selected elements are selected again")
    found = mask_in(r, indices, source.meta["val"])
    if found is not None:
        return _by_mask(r, node, source, *found)
    return _at_indices(r, node, source, indices) if any(r.compact(i) for i in indices if i is not None) else None


def _by_mask(r: Rewriter, node: Node, source: Node, space: Space, dim: int) -> Found:
    inner = within(r, source, space, dim)
    return Compact(source if inner is None else inner.full, space, dim)


def within(r: Rewriter, operand: Node, space: Space, dim: int) -> Compact | None:
    """The operand of a selection at dim ``dim``: None for a whole tensor, else a compact one, whose selected elements
    the mask selects from again."""
    inner, outer = r.compact(operand), r.compact(space.origin)
    if inner is None and outer is None:
        return None
    if inner is None or outer is None or inner.space is not outer.space or inner.dim != dim + outer.dim:
        raise Cannot("a selection among the elements of another one")
    return inner


def _at_indices(r: Rewriter, node: Node, source: Node, indices: Sequence[Any]) -> Found:
    """Reads at indices that are themselves selected: indices where the mask is false become 0."""
    if r.compact(source) is not None:
        raise Cannot("selected elements are read at indices")
    value = node.meta["val"]
    found = [c for i in indices if i is not None and (c := r.compact(i)) is not None]
    space, rank = found[0].space, max(i.meta["val"].dim() for i in indices if i is not None)
    trailing = {i.meta["val"].dim() - 1 - c.dim for i in indices if i is not None and (c := r.compact(i)) is not None}
    given = [d for d, i in enumerate(indices) if i is not None]
    if len(trailing) != 1 or any(c.space is not space for c in found) or given != list(range(given[0], given[-1] + 1)):
        raise Cannot("indices of different selections")
    behind = trailing.pop()
    whole: list[Any] = []
    for i in indices:
        new: Any = i if i is None else r.whole(i, rank, space, behind)
        if i is not None and r.compact(i) is not None:
            new = r.write.selected(Compact(new, space, rank - 1 - behind), rank, 0)
        whole.append(new)
    made = r.write.call(aten.index.Tensor, source, whole)
    after = value.dim() - given[0] - rank
    return Compact(made, space, value.dim() - 1 - after - behind)


def masked_select(r: Rewriter, node: Node) -> Found:
    source, mask = node.args[0], node.args[1]
    assert isinstance(source, Node) and isinstance(mask, Node)
    if r.compact(source) is not None or r.compact(mask) is not None:
        space = r.space_of(mask)
        inner = within(r, source, space, 0)
        if inner is None or source.meta["val"].dim() != mask.meta["val"].dim():
            raise Cannot("a selection among the elements of another one")
        return Compact(inner.full, space, 0)
    full, spread, _ = broadcast(r, source, mask)
    return Compact(full, r.space_of(spread), 0)


def broadcast(r: Rewriter, *operands: Node) -> tuple[Node, Node, list[Any]]:
    """Two tensors broadcast against each other, and their common sizes."""
    rank = max(o.meta["val"].dim() for o in operands)
    if rank == 0:
        raise Cannot("a mask of no dims")
    sizes: list[Any] = [1] * rank
    for operand in operands:
        own = r.write.sizes(operand)
        for d, size in enumerate(own, start=rank - len(own)):
            sizes[d] = size if sizes[d] == 1 else sizes[d]
    first, second = (_expanded(r, operand, sizes) for operand in operands)
    return first, second, sizes


def _expanded(r: Rewriter, operand: Node, sizes: list[Any]) -> Node:
    value = operand.meta["val"]
    target = [s.meta["val"] if isinstance(s, Node) else s for s in sizes]
    if value.dim() == len(sizes) and all(str(a) == str(b) for a, b in zip(value.size(), target)):
        return operand
    key = operand, str(target)
    if key not in r.broadcast:
        r.broadcast[key] = r.write.call(aten.expand.default, operand, sizes)
    return r.broadcast[key]


def nonzero(r: Rewriter, node: Node) -> Found:
    mask: Any = node.args[0]
    value = mask.meta["val"]
    if not value.dim():
        return None
    if value.dtype != torch.bool:
        if mask not in r.broadcast:
            r.broadcast[mask] = r.write.call(aten.ne.Scalar, mask, 0)
        return Positions(r.space_of(r.broadcast[mask]))
    if r.compact(mask) is not None:
        raise Cannot("positions among selected elements")
    return Positions(r.space_of(mask))


def column(r: Rewriter, space: Space, k: int) -> Compact:
    """Positions along dim k of the mask."""
    w = r.write
    size = space.sizes[k]
    at = w.call(
        torch.ops.prims.iota.default,
        size,
        start=0,
        step=1,
        dtype=torch.int64,
        device=space.mask.meta["val"].device,
        requires_grad=False,
    )
    at = w.unsqueeze(at, -1, space.rank - 1 - k)
    full = w.call(aten.expand.default, at, list(space.sizes))
    full.meta["symshape.column"] = k
    return Compact(full, space, 0)


def of_positions(original: Callable[[Rewriter, Node], Found]) -> Callable[[Rewriter, Node], Found]:
    """A rule for operations on a column of positions; for other tensors it is ``original``."""

    def rule(r: Rewriter, node: Node) -> Found:
        found = r.values.get(node.args[0])  # type: ignore[arg-type]
        if not isinstance(found, Positions):
            return original(r, node)
        space, name = found.space, str(node.target)
        args = list(node.args[1:])
        if name == "aten.unbind.int" and normal_dims(args[0] if args else 0, 2) == [1]:
            return [column(r, space, k) for k in range(space.rank)]
        if name == "aten.select.int" and normal_dims(args[0], 2) == [1] and isinstance(args[1], int):
            return column(r, space, args[1] % space.rank)
        squeezes = name.startswith("aten.squeeze") and (not args or 1 in normal_dims(args[0], 2))
        if space.rank == 1 and (squeezes or (name.startswith(("aten.view", "aten.reshape")) and _is_row(r, node))):
            return column(r, space, 0)
        raise Cannot("positions of selected elements are used as a matrix")

    return rule


def _is_row(r: Rewriter, node: Node) -> bool:
    value = node.meta["val"]
    return value.dim() == 1 and r.counted(value.size(0)) is not None


def getitem(r: Rewriter, node: Node) -> Found:
    found: Any = r.values[node.args[0]]  # type: ignore[index]
    one = found[node.args[1]]
    if one is None:
        raise Cannot("this result needs the selected elements in contiguous memory")
    return one


def sym_size(r: Rewriter, node: Node) -> Found:
    source, dim = node.args
    found = r.values.get(source)  # type: ignore[arg-type]
    rank = source.meta["val"].dim()  # type: ignore[union-attr]
    at = 0 if isinstance(found, Positions) else found.dim if isinstance(found, Compact) else None
    if at is None or isinstance(found, (Uniform, Scalar)) or normal_dims(dim, rank) != [at]:
        value = node.meta["val"]
        if not isinstance(found, Compact):
            raise Cannot("a size of positions of selected elements")
        (full,) = found.dims(rank)[normal_dims(dim, rank)[0]]
        return Uniform(r.write.call(aten.sym_size.int, found.full, full)) if not isinstance(value, int) else None
    space = found.space  # type: ignore[union-attr]
    r.name_size(node.meta["val"], space)
    return Scalar(r.write.count(space), space)


def sym_numel(r: Rewriter, node: Node) -> Found:
    source: Any = node.args[0]
    found = r.compact(source)
    if found is None:
        raise Cannot("a size of positions of selected elements")
    total = r.write.count(found.space)
    for d, full in enumerate(found.dims(source.meta["val"].dim())):
        if d != found.dim:
            total = r.write.call(aten.mul.Tensor, total, r.write.sizes(found.full)[full[0]])
    return Scalar(total, found.space if source.meta["val"].dim() == 1 else None)


SOURCES = frozenset({aten.index.Tensor, aten.masked_select.default, aten.nonzero.default})

RULES: dict[Any, Callable[[Rewriter, Node], Found]] = {
    aten.index.Tensor: index,
    aten.masked_select.default: masked_select,
    aten.nonzero.default: nonzero,
    aten.sym_size.int: sym_size,
    aten.sym_numel.default: sym_numel,
    operator.getitem: getitem,
}
