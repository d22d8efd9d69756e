"""Reductions over selected elements.

Before: %a = index(%x, [%m]); %s = sum(%a)
After:  %s = sum(where(%m, %x, 0))

Elements where the mask is false become the identity element. A mean divides by the number of selected elements: 0 of
them give NaN, as in eager mode. An extremum of no element is eager mode's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from symshape.frontend.graph_rewrites.masks.graph_walk import Found, Rewriter
from symshape.frontend.graph_rewrites.masks.mask_space import (
    Cannot,
    Compact,
    Joined,
    Space,
    Uniform,
    normal_dims,
    size_of,
)
from symshape.frontend.graph_rewrites.masks.node_writer import aten

Rule = Callable[[Rewriter, Node], Found]
_HALVES = (torch.float16, torch.bfloat16)


def _lowest(dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


class Reduction:
    """A reduction as it was called: the tensor, the dims, and which of these are dims of the full form."""

    def __init__(self, r: Rewriter, node: Node, dims: Any, keepdim: bool) -> None:
        source: Any = node.args[0]
        found = r.compact(source)
        if found is None:
            raise Cannot("positions of selected elements are reduced")
        self.r, self.node, self.value, self.keepdim = r, node, found, keepdim
        self.rank = source.meta["val"].dim()
        self.all_dims = dims is None or (isinstance(dims, Sequence) and not dims)
        self.dims = normal_dims(dims, self.rank)
        mapped = found.dims(self.rank)
        self.full_dims = [full for d in self.dims for full in mapped[d]]

    @property
    def across(self) -> bool:
        """Whether the selected dim is reduced, not only other dims."""
        return self.value.dim in self.dims

    def hidden(self, other: Any) -> Node:
        return self.r.write.selected(self.value, self.rank, other) if self.across else self.value.full

    def result(self, made: Node) -> Found:
        """The value that the reduction of the full form over ``full_dims`` stands for."""
        if self.across:
            if self.keepdim and self.value.space.rank > 1:
                first = self.value.dim
                extra = list(range(first + 1, first + self.value.space.rank))
                made = self.r.write.call(aten.squeeze.dims, made, extra)
            return Uniform(made)
        before = sum(d < self.value.dim for d in self.dims)
        return Compact(made, self.value.space, self.value.dim - (0 if self.keepdim else before))

    def number(self, dtype: torch.dtype) -> Node:
        """The number of elements that are combined into each result, as a 0-dim tensor."""
        w = self.r.write
        sizes = w.sizes(self.value.full)
        beside = [
            sizes[full[0]]
            for d, full in enumerate(self.value.dims(self.rank))
            if d in self.dims and d != self.value.dim
        ]
        found = w.count(self.value.space)
        for size in beside:
            found = w.call(aten.mul.Tensor, found, size)
        return w.cast(found, dtype)

    def total(self, full: Node, dtype: torch.dtype, keepdim: bool) -> Node:
        return self.r.write.call(aten.sum.dim_IntList, full, self.full_dims, keepdim, dtype=dtype)


def _arguments(node: Node, *names: str) -> list[Any]:
    """Arguments after the first one, by position or name; None for those left out."""
    given = dict(zip(names, node.args[1:])) | dict(node.kwargs)
    return [given.get(name) for name in names]


def simple(other: Any, list_overload: Any = None) -> Rule:
    """A rule of a reduction over a list of dims. ``other``: its identity element, or a function from dtype to it."""

    def rule(r: Rewriter, node: Node) -> Found:
        dims, keepdim = _arguments(node, "dim", "keepdim")
        reduction = Reduction(r, node, dims, bool(keepdim))
        dtype = reduction.value.full.meta["val"].dtype
        masked = reduction.hidden(other(dtype) if callable(other) else other)
        kwargs = {"dtype": node.kwargs["dtype"]} if node.kwargs.get("dtype") is not None else {}
        target = list_overload or node.target
        return reduction.result(r.write.call(target, masked, reduction.full_dims, reduction.keepdim, **kwargs))

    return rule


def one_by_one(other: Any, dim_overload: Any) -> Rule:
    """``simple`` for an operation that reduces one dim at a time."""

    def rule(r: Rewriter, node: Node) -> Found:
        dims, keepdim = _arguments(node, "dim", "keepdim")
        dims = None if str(node.target).endswith(".default") else dims
        reduction = Reduction(r, node, dims, bool(keepdim))
        made = reduction.hidden(other)
        kwargs = {"dtype": node.kwargs["dtype"]} if node.kwargs.get("dtype") is not None else {}
        for d in sorted(reduction.full_dims, reverse=True):
            made = r.write.call(dim_overload, made, d, reduction.keepdim, **kwargs)
        return reduction.result(made)

    return rule


def extremum(other: Callable[[torch.dtype], Any], target: Any, pairwise: Any) -> Rule:
    def rule(r: Rewriter, node: Node) -> Found:
        dims, keepdim = _arguments(node, "dim", "keepdim")
        joined = r.values.get(node.args[0])  # type: ignore[arg-type]
        if isinstance(joined, Joined):
            return _of_joined(r, node, joined, other, target, pairwise)
        reduction = Reduction(r, node, dims, bool(keepdim))
        masked = reduction.hidden(other(reduction.value.full.meta["val"].dtype))
        made = r.write.call(target, masked, reduction.full_dims, reduction.keepdim)
        if reduction.across:
            made = _nonempty(reduction, made)
        return reduction.result(made)

    return rule


def largest_of_any(r: Rewriter, node: Node) -> Found:
    """``amax`` of ``torch._prims``, whose result for no element is -inf (``frontend/decompositions/softmax.py``)."""
    reduction = Reduction(r, node, node.args[1], False)
    masked = reduction.hidden(_lowest(reduction.value.full.meta["val"].dtype))
    return reduction.result(r.write.call(node.target, masked, reduction.full_dims))


def _of_joined(
    r: Rewriter, node: Node, joined: Joined, other: Callable[[torch.dtype], Any], target: Any, pairwise: Any
) -> Found:
    """The reduction of selected elements concatenated with at least one whole element, so that the result is defined if
    none is selected: PyTorch's rules concatenate so where a size may be 0."""
    dims, keepdim = _arguments(node, "dim", "keepdim")
    rank = node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    whole = [p for p in joined.pieces if isinstance(p, Node) and (size_of(p.meta["val"], joined.dim) or 0) > 0]
    if normal_dims(dims, rank) != [joined.dim] or not whole:
        raise Cannot("selected elements are joined with others")
    made: Node | None = None
    for piece in joined.pieces:
        if isinstance(piece, Node):
            part = r.write.call(target, piece, [joined.dim], bool(keepdim))
        else:
            masked = r.write.selected(piece, rank, other(piece.full.meta["val"].dtype))
            (full,) = [piece.dims(rank)[joined.dim]]
            part = r.write.call(target, masked, full, bool(keepdim))
            part = r.write.call(aten.squeeze.dims, part, full[1:]) if keepdim and len(full) > 1 else part
        made = part if made is None else r.write.call(pairwise, made, part)
    assert made is not None
    return Uniform(made)


def _nonempty(reduction: Reduction, made: Node) -> Node:
    """Inserts eager mode's error for no selected element: an IndexError if dims were named, else a RuntimeError."""
    w, space = reduction.r.write, reduction.value.space
    count, name = w.count(space), str(reduction.node.target).split(".")[1]
    reduction.r.nonempty[space] = None
    if reduction.all_dims:
        w.require(
            w.call(aten.gt.Scalar, count, 0),
            f"{name}(): Expected reduction dim to be specified for "
            "input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
        )
        return made
    # An index that is out of range where the count is 0: kernels report it, and nothing waits for it.
    index = w.unsqueeze(w.cast(w.call(aten.eq.Scalar, count, 0), torch.int64), 0)
    return w.call(aten.squeeze.dims, w.call(aten.index_select.default, w.unsqueeze(made, 0), 0, index), [0])


def mean(r: Rewriter, node: Node) -> Found:
    dims, keepdim, dtype = _arguments(node, "dim", "keepdim", "dtype")
    reduction = Reduction(r, node, dims, bool(keepdim))
    if not reduction.across:
        kwargs = {} if dtype is None else {"dtype": dtype}
        made = r.write.call(aten.mean.dim, reduction.value.full, reduction.full_dims, reduction.keepdim, **kwargs)
        return reduction.result(made)
    out = node.meta["val"].dtype
    wide = torch.float32 if out in _HALVES else out
    total = reduction.total(reduction.hidden(0), wide, reduction.keepdim)
    made = r.write.call(aten.div.Tensor, total, reduction.number(wide))
    return reduction.result(r.write.cast(made, out))


def logsumexp(r: Rewriter, node: Node) -> Found:
    """Relative to the maximum, so that nothing overflows; -inf for no element."""
    w = r.write
    dims, keepdim = _arguments(node, "dim", "keepdim")
    reduction = Reduction(r, node, dims, bool(keepdim))
    top = w.call(aten.amax.default, reduction.hidden(float("-inf")), reduction.full_dims, True)
    infinite = w.call(aten.eq.Scalar, w.call(aten.abs.default, top), float("inf"))
    top = w.call(aten.where.self, infinite, w.scalar(0, top.meta["val"]), top)
    powers = w.call(aten.exp.default, w.call(aten.sub.Tensor, reduction.value.full, top))
    if reduction.across:
        powers = w.selected(Compact(powers, reduction.value.space, reduction.value.dim), reduction.rank, 0)
    total = w.call(aten.sum.dim_IntList, powers, reduction.full_dims, reduction.keepdim)
    if not reduction.keepdim:
        top = w.call(aten.squeeze.dims, top, reduction.full_dims)
    return reduction.result(w.call(aten.add.Tensor, w.call(aten.log.default, total), top))


def _moments(r: Rewriter, node: Node) -> tuple[Found, Found]:
    """Variance and mean in two passes over the elements, so that nothing cancels."""
    w = r.write
    dims, correction, keepdim = _arguments(node, "dim", "correction", "keepdim")
    reduction = Reduction(r, node, dims, bool(keepdim))
    out = reduction.value.full.meta["val"].dtype
    if not out.is_floating_point:
        raise Cannot("variance of complex numbers")
    wide = torch.float32 if out in _HALVES else out
    full, number = w.cast(reduction.value.full, wide), reduction.number(wide)
    mean = w.call(aten.div.Tensor, reduction.total(w.cast(reduction.hidden(0), wide), wide, True), number)
    deviations = w.call(aten.sub.Tensor, full, mean)
    square = Compact(w.call(aten.mul.Tensor, deviations, deviations), reduction.value.space, reduction.value.dim)
    total = reduction.total(w.selected(square, reduction.rank, 0), wide, reduction.keepdim)
    left = w.call(aten.sub.Tensor, number, 1 if correction is None else correction)
    variance = w.cast(w.call(aten.div.Tensor, total, w.call(aten.clamp.default, left, 0)), out)
    if not reduction.keepdim:
        mean = w.call(aten.squeeze.dims, mean, reduction.full_dims)
    return reduction.result(variance), reduction.result(w.cast(mean, out))


def _beside(r: Rewriter, node: Node) -> Reduction | None:
    dims, keepdim = _arguments(node, "dim", "correction", "keepdim")[::2]
    reduction = Reduction(r, node, dims, bool(keepdim))
    return None if reduction.across else reduction


def var(r: Rewriter, node: Node) -> Found:
    beside = _beside(r, node)
    if beside is None:
        return _moments(r, node)[0]
    kwargs = {"correction": node.kwargs.get("correction"), "keepdim": beside.keepdim}
    return beside.result(r.write.call(node.target, beside.value.full, beside.full_dims, **kwargs))


def std(r: Rewriter, node: Node) -> Found:
    found = var(r, node) if _beside(r, node) is not None else _moments(r, node)[0]
    if isinstance(found, Uniform):
        return Uniform(r.write.call(aten.sqrt.default, found.node))
    return found


def var_mean(r: Rewriter, node: Node) -> Found:
    beside = _beside(r, node)
    if beside is None:
        return list(_typed(node, _moments(r, node)))
    kwargs = {"correction": node.kwargs.get("correction"), "keepdim": beside.keepdim}
    return _results(r, node, beside, r.write.call(node.target, beside.value.full, beside.full_dims, **kwargs))


def extremum_dim(r: Rewriter, node: Node) -> Found:
    """Values and indices of an extremum along a dim other than the selected one."""
    dims, keepdim = _arguments(node, "dim", "keepdim")
    reduction = Reduction(r, node, dims, bool(keepdim))
    if reduction.across:
        raise Cannot("the index of an extremum among selected elements")
    made = r.write.call(node.target, reduction.value.full, reduction.full_dims[0], reduction.keepdim)
    return _results(r, node, reduction, made)


def _results(r: Rewriter, node: Node, reduction: Reduction, made: Node) -> Found:
    import operator

    return [reduction.result(r.write.call(operator.getitem, made, k)) for k in range(len(node.meta["val"]))]  # type: ignore[misc]


def _typed(node: Node, results: Sequence[Found]) -> Sequence[Any]:
    return results


def index(r: Rewriter, node: Node) -> Found:
    """argmax and argmin along a dim other than the selected one."""
    dims, keepdim = _arguments(node, "dim", "keepdim")
    reduction = Reduction(r, node, dims, bool(keepdim))
    if reduction.across:
        raise Cannot("the index of an extremum among selected elements")
    return reduction.result(r.write.call(node.target, reduction.value.full, reduction.full_dims[0], reduction.keepdim))


def numbered(space: Space, r: Rewriter) -> Node:
    """The rank of each element among the selected ones, from 0."""
    flat = r.write.call(aten.sub.Tensor, r.write.ranks(space), 1)
    return flat if space.rank == 1 else r.write.reshape(flat, list(space.sizes))


def cumulative(other: Any) -> Rule:
    """A rule of a running sum or product along the selected dim. ``other``: the identity element."""

    def rule(r: Rewriter, node: Node) -> Found:
        source: Any = node.args[0]
        found = r.compact(source)
        if found is None:
            raise Cannot("positions of selected elements are summed")
        rank = source.meta["val"].dim()
        (dim,) = normal_dims(node.args[1], rank)
        full = found.dims(rank)[dim]
        if dim != found.dim:
            return Compact(r.write.call(node.target, found.full, full[0], **node.kwargs), found.space, found.dim)
        if found.space.rank > 1:
            raise Cannot("a running result over a mask of several dims")
        masked = r.write.selected(found, rank, other)
        return Compact(r.write.call(node.target, masked, dim, **node.kwargs), found.space, found.dim)

    return rule


RULES: dict[Any, Rule] = {
    aten.sum.default: simple(0, aten.sum.dim_IntList),
    aten.sum.dim_IntList: simple(0),
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.prod.default: one_by_one(1, aten.prod.dim_int),
    aten.prod.dim_int: one_by_one(1, aten.prod.dim_int),
    aten.any.default: simple(0, aten.any.dims),
    aten.any.dim: simple(0, aten.any.dims),
    aten.any.dims: simple(0),
    aten.all.default: simple(1, aten.all.dims),
    aten.all.dim: simple(1, aten.all.dims),
    aten.all.dims: simple(1),
    aten.amax.default: extremum(_lowest, aten.amax.default, aten.maximum.default),
    torch.ops.prims.amax.default: largest_of_any,
    aten.amin.default: extremum(_highest, aten.amin.default, aten.minimum.default),
    aten.max.default: extremum(_lowest, aten.amax.default, aten.maximum.default),
    aten.min.default: extremum(_highest, aten.amin.default, aten.minimum.default),
    aten.max.dim: extremum_dim,
    aten.min.dim: extremum_dim,
    aten.argmax.default: index,
    aten.argmin.default: index,
    aten.logsumexp.default: logsumexp,
    aten.var.correction: var,
    aten.std.correction: std,
    aten.var_mean.correction: var_mean,
    aten.cumsum.default: cumulative(0),
    aten.cumprod.default: cumulative(1),
}
