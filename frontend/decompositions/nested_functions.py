"""Functions of nested tensors (jagged layout) for which PyTorch has no rule, or one without a gradient.

They are functions of the values, through which autograd differentiates. Over dense dims a function is applied to the
values. Over the ragged dim it is applied to rows padded with its identity element, or to each value and a result of its
row. Offsets are not read on the host. A rule that does not support its arguments returns NotImplemented, and PyTorch's
own is used.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from symshape.runtime.torch_c import Rows, is_jagged, nested_of, rows_of

Tensor = torch.Tensor
aten = torch.ops.aten


@dataclass(frozen=True)
class Dims:
    """Dims of a nested tensor: the dense ones as those of the values, and as its own; whether the ragged one is among
    them."""

    inner: tuple[int, ...]
    outer: tuple[int, ...]
    ragged: bool


def _dims(x: Tensor, dim: Any) -> Dims | None:
    """The dims in the values; None for all dims, for the dim of rows, and for an invalid dim."""
    rank, ragged = x.dim(), rows_of(x).dim
    given = (dim,) if type(dim) is int else dim
    if not isinstance(given, (tuple, list)) or not given or any(type(d) is not int for d in given):
        return None
    if any(not -rank <= d < rank or d % rank == 0 for d in given):
        return None
    wrapped = tuple(d % rank for d in given)
    dense = tuple(d for d in wrapped if d != ragged)
    return Dims(tuple(d - 1 for d in dense), wrapped, ragged in wrapped)


def _view(x: Tensor, values: Tensor, dropped: Sequence[int] = ()) -> Tensor:
    """A nested tensor with the rows of ``x``, which is a view of its values; ``dropped``: dims of the values of ``x``
    that these values lack."""
    rows = rows_of(x)
    return nested_of(replace(rows, values=values, dim=rows.dim - sum(d < rows.dim - 1 for d in dropped)))


def _like(x: Tensor, values: Tensor, dropped: Sequence[int] = ()) -> Tensor:
    """As ``_view``, for computed values: no view, like results of eager mode's operators."""
    return _view(x, values, dropped).clone()


class _PaddedRows(torch.autograd.Function):
    """(values, width) as (rows, longest, width): PyTorch's operator, which has no gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, longest: Any, padding: float) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.total = values.shape[0]
        found: Tensor = aten._jagged_to_padded_dense_forward(values, [offsets], [longest], padding)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _ValuesOfRows.apply(gradient, *ctx.saved_tensors, ctx.total), None, None, None


class _ValuesOfRows(torch.autograd.Function):
    """(rows, longest, width) as (values, width)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, offsets: Tensor, total: Any) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.longest = rows.shape[1]
        found: Tensor = aten._padded_dense_to_jagged_forward(rows, [offsets], total)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _PaddedRows.apply(gradient, *ctx.saved_tensors, ctx.longest, 0.0), None, None


def _padded(x: Tensor, padding: float, least: int = 0) -> Tensor:
    """(rows, ..., longest, ...), the ragged dim in its place; ``least``: minimal length of the padded rows."""
    rows = rows_of(x)
    first = rows.values.movedim(rows.dim - 1, 0)
    flat = first.reshape(first.shape[0], math.prod(first.shape[1:]))
    made: Tensor = _PaddedRows.apply(flat, rows.offsets, torch.sym_max(_longest(rows), least), padding)
    return made.unflatten(-1, first.shape[1:]).movedim(1, rows.dim) if first.dim() > 1 else made.squeeze(-1)


def _to_padded(x: Tensor, padding: float, output_size: Sequence[Any] | None = None) -> Any:
    """Of ``output_size`` only the ragged dim is used, as in eager mode; ``torch.nested``'s function specialises all
    sizes."""
    if output_size is None or _has_gaps(x):
        return NotImplemented
    longest = torch.zeros(output_size[rows_of(x).dim], 0)
    return _padded(nested_of(replace(rows_of(x), longest=longest)), padding)


def _values_of(x: Tensor, padded: Tensor) -> Tensor:
    """The values of padded rows; of rows that are one element repeated, that element for each value."""
    rows = rows_of(x)
    first = padded.movedim(rows.dim, 1)
    total = rows.values.shape[rows.dim - 1]
    flat = first.flatten(2) if first.dim() > 2 else first.unsqueeze(-1)
    made: Tensor = _ValuesOfRows.apply(flat, rows.offsets, total)
    return made.unflatten(-1, first.shape[2:]).movedim(0, rows.dim - 1) if first.dim() > 2 else made.squeeze(-1)


def _spread(x: Tensor, found: Tensor) -> Tensor:
    """Broadcasts results of rows to their values: (rows, ..., 1, ...) to the values' shape."""
    rows = rows_of(x)
    sizes = [-1] * found.dim()
    sizes[rows.dim] = _longest(rows)
    return _values_of(x, found.expand(sizes))


def _longest(rows: Rows) -> Any:
    """An upper bound of the lengths that needs no read of data."""
    return rows.values.shape[rows.dim - 1] if rows.longest is None else rows.longest.shape[0]


def _lengths(x: Tensor, rank: int) -> Tensor:
    """(rows, 1, 1, ...)"""
    return rows_of(x).offsets.diff().view(-1, *[1] * (rank - 1))


def _has_gaps(x: Tensor) -> bool:
    return rows_of(x).lengths is not None


def _with_dtype(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x if dtype is None or dtype == x.dtype else _like(x, rows_of(x).values.to(dtype))


def _wide(x: Tensor) -> Tensor:
    """Half types in float32, for computations of several steps."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    return _view(x, rows_of(x).values.float()) if half else x


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduced(x: Tensor, dims: Dims, keepdim: bool, dense: Callable[..., Any], ragged: Callable[..., Any] | None) -> Any:
    """``dense(values, dims, keepdim)``, or ``ragged(dims, keepdim)`` where the ragged dim is among the dims."""
    if dims.ragged:
        return NotImplemented if ragged is None or _has_gaps(x) else ragged(dims.outer, keepdim)
    found = dense(rows_of(x).values, dims.inner, keepdim)
    dropped = () if keepdim else dims.inner
    return tuple(_like(x, one, dropped) for one in found) if isinstance(found, tuple) else _like(x, found, dropped)


def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    dims = _dims(x, dim)
    if dims is None:
        return NotImplemented
    how = {"dtype": dtype}
    return _reduced(
        x,
        dims,
        keepdim,
        lambda values, inner, keep: values.sum(inner, keep, **how),
        lambda outer, keep: _padded(x, 0).sum(outer, keep, **how),
    )


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    dims, x = _dims(x, dim), _with_dtype(x, dtype)
    if dims is None or not x.dtype.is_floating_point:
        return NotImplemented
    return _reduced(
        x,
        dims,
        keepdim,
        lambda values, inner, keep: values.mean(inner, keep),
        lambda outer, keep: (_padded(_wide(x), 0).sum(outer, keep) / _count(x, dims, keep)).to(x.dtype),
    )


def _count(x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    """The number of elements of each row that are reduced, of a rank that broadcasts with the result."""
    rank = x.dim() - (0 if keepdim else len(dims.outer))
    return _lengths(x, rank) * math.prod(rows_of(x).values.shape[d] for d in dims.inner)


def _moments(x: Tensor, dims: Dims, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Variance and mean over the ragged dim, in two passes."""
    dtype, x = x.dtype, _wide(x)
    mean = _padded(x, 0).sum(dims.outer, True) / _count(x, dims, True)
    rest = rows_of(x).values - _spread(x, mean)
    squares = _padded(_view(x, rest * rest), 0).sum(dims.outer, True)
    variance = squares / (_count(x, dims, True) - correction).clamp(min=0)
    return tuple((t if keepdim else t.squeeze(dims.outer)).to(dtype) for t in (variance, mean))  # type: ignore[return-value]


def _deviation(variance: Tensor) -> Tensor:
    """Its root, whose gradient is 0 at 0, as that of ``std``."""
    none = variance == 0
    return variance.masked_fill(none, 1).sqrt().masked_fill(none, 0)


def _spread_of(function: Callable[..., Any], finish: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    """``var`` and its like; ``finish`` makes the result of variance and mean."""

    def rule(
        x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
    ) -> Any:
        dims = _dims(x, dim)
        if dims is None or not x.dtype.is_floating_point:
            return NotImplemented
        less = int(unbiased) if correction is None else correction
        return _reduced(
            x,
            dims,
            keepdim,
            lambda values, inner, keep: function(values, inner, correction=less, keepdim=keep),
            lambda outer, keep: finish(*_moments(x, dims, less, keep)),
        )

    return rule


def _logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    if dims is None or not x.dtype.is_floating_point:
        return NotImplemented
    return _reduced(
        x,
        dims,
        keepdim,
        lambda values, inner, keep: values.logsumexp(inner, keep),
        lambda outer, keep: _log_of_sum(_padded(_wide(x), -math.inf, least=1), outer, keep).to(x.dtype),
    )


def _log_of_sum(padded: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """``logsumexp``; PyTorch's gradient guards on emptiness."""
    largest = padded.detach().amax(dims, True)
    largest = largest.masked_fill(largest.isinf(), 0)
    found = (padded - largest).exp().sum(dims, True).log() + largest
    return found if keepdim else found.squeeze(dims)


def _prod(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    dims = _dims(x, dim)
    if dims is None or len(dims.outer) > 1:
        return NotImplemented
    return _reduced(
        x,
        dims,
        keepdim,
        lambda values, inner, keep: values.prod(inner[0], keep, dtype=dtype),
        lambda outer, keep: _padded(x, 1).prod(outer[0], keep, dtype=dtype),
    )


def _extremum(name: str) -> Callable[..., Any]:
    """``max`` and ``min`` of a dim, with indices. An empty row's is the type's last number, as in eager mode."""

    def rule(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        dims = _dims(x, dim) if type(dim) is int else None
        if dims is None or not dims.ragged or _has_gaps(x) or not x.dtype.is_floating_point:
            return NotImplemented
        limits = torch.finfo(x.dtype)
        padding = limits.min if name == "max" else limits.max
        return getattr(torch, name)(_padded(x, padding), dims.outer[0], keepdim)

    return rule


def _norm(x: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
    return _vector_norm(x, 2.0 if p == "fro" else p, dim, keepdim, dtype=dtype)


def _vector_norm(
    x: Tensor, ord: Any = 2.0, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """Over the ragged dim those to which a 0 more adds nothing."""
    dims = _dims(x, dim)
    if dims is None or not isinstance(ord, (int, float)) or not x.dtype.is_floating_point:
        return NotImplemented
    norm = functools.partial(torch.linalg.vector_norm, ord=ord, dtype=dtype)
    return _reduced(
        x,
        dims,
        keepdim,
        lambda values, inner, keep: norm(values, dim=inner, keepdim=keep),
        (lambda outer, keep: norm(_padded(x, 0), dim=outer, keepdim=keep)) if ord > 0 else None,
    )


# --- functions of the shape of what they take ------------------------------------------------------------------------


def _along(dense: Callable[..., Tensor], padding: float) -> Callable[..., Any]:
    """A rule for functions along a dim: ``dense(values, dim, ...)``; along the ragged dim, of padded rows."""

    def rule(x: Tensor, dim: Any, **how: Any) -> Any:
        dims = _dims(x, dim) if type(dim) is int else None
        if dims is None:
            return NotImplemented
        if not dims.ragged:
            return _like(x, dense(rows_of(x).values, dims.inner[0], **how))
        return NotImplemented if _has_gaps(x) else _like(x, _values_of(x, dense(_padded(x, padding), dim, **how)))

    return rule


def _softmax(logarithm: bool) -> Callable[..., Any]:
    """Over the ragged dim, of each value by the maximum and the sum of its row."""

    def rule(x: Tensor, dim: Any = None, dtype: torch.dtype | None = None, _stacklevel: int = 3) -> Any:
        dims, x = _dims(x, dim) if type(dim) is int else None, _with_dtype(x, dtype)
        if dims is None or (dims.ragged and _has_gaps(x)) or not x.dtype.is_floating_point:
            return NotImplemented
        if not dims.ragged:
            dense = torch.log_softmax if logarithm else torch.softmax
            return _like(x, dense(rows_of(x).values, dims.inner[0]))
        wide = rows_of(_wide(x)).values
        largest = _padded(_view(x, wide.detach()), -math.inf, least=1).amax(dim, True)
        shifted = wide - _spread(x, largest)
        total = _padded(_view(x, shifted.exp()), 0).sum(dim, True)
        found = shifted - _spread(x, total.log()) if logarithm else shifted.exp() / _spread(x, total)
        return _like(x, found.to(x.dtype))

    return rule


def _normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    dims = _dims(input, dim)
    if dims is None or dims.ragged or out is not None:
        return NotImplemented
    return _like(input, F.normalize(rows_of(input).values, p, dims.inner[0], eps))


def _of_a_dim(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function(values, ..., dim=dim)`` of a dense dim."""

    def rule(x: Tensor, *more: Any, dim: int, **how: Any) -> Any:
        dims = _dims(x, dim)
        if dims is None or dims.ragged:
            return NotImplemented
        found = function(rows_of(x).values, *more, dim=dims.inner[0], **how)
        return _like(x, found) if isinstance(found, Tensor) else type(found)(_like(x, one) for one in found)

    return rule


def _glu(input: Tensor, dim: int = -1) -> Any:
    return _of_a_dim(F.glu)(input, dim=dim)


def _sort(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    return _of_a_dim(torch.sort)(x, dim=dim, descending=descending, stable=stable)


def _topk(x: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return _of_a_dim(torch.topk)(x, k, dim=dim, largest=largest, sorted=sorted)


def _flip(x: Tensor, *dims: Any) -> Any:
    given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    found = _dims(x, given)
    return NotImplemented if found is None or found.ragged else _like(x, rows_of(x).values.flip(found.inner))


# --- parts of rows ---------------------------------------------------------------------------------------------------


def _narrow(x: Tensor, dim: int, start: Any, length: Any) -> Any:
    dims = _dims(x, dim)
    if dims is None or dims.ragged:
        return NotImplemented
    return _view(x, rows_of(x).values.narrow(dims.inner[0], start, length))


def _select(x: Tensor, dim: int, index: Any) -> Any:
    dims = _dims(x, dim)
    if dims is None or dims.ragged:
        return NotImplemented
    return _view(x, rows_of(x).values.select(dims.inner[0], index), dims.inner)


def _getitem(x: Tensor, key: Any) -> Any:
    """Slices and numbers in dense dims."""
    keys = key if isinstance(key, tuple) else (key,)
    if not all(one is Ellipsis or isinstance(one, (slice, int, torch.SymInt)) for one in keys):
        return NotImplemented
    if keys.count(Ellipsis) > 1 or any(isinstance(one, bool) for one in keys):
        return NotImplemented
    rank = x.dim()
    at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    before, after = keys[:at], keys[at + 1 :]
    missing = rank - len(before) - len(after)
    if missing < 0:
        return NotImplemented
    every = (*before, *[slice(None)] * missing, *after)
    ragged = rows_of(x).dim
    if any(every[d] != slice(None) for d in (0, ragged)) or all(one == slice(None) for one in every):
        return NotImplemented
    dropped = [d - 1 for d in range(1, rank) if not isinstance(every[d], slice)]
    return _view(x, rows_of(x).values[every[1:]], dropped)


def _unbind(x: Tensor, dim: int = 0) -> Any:
    """A split of the values, whose gradient concatenates those of the rows: PyTorch's reads the lengths again."""
    rows = rows_of(x)
    if dim != 0 or rows.lengths is not None:
        return NotImplemented
    sizes = rows.offsets.diff().tolist()
    total = rows.values.shape[rows.dim - 1]
    for size in sizes:
        torch._check(size >= 0)
        torch._check(size <= total)
    torch._check(sum(sizes) <= total)
    return torch.split(rows.values, sizes, rows.dim - 1)


# --- rows joined, and rows of indices --------------------------------------------------------------------------------


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Along the ragged dim: row i is all rows i one behind the other."""
    if not all(is_jagged(x) for x in tensors) or len({x.dim() for x in tensors}) > 1:
        return NotImplemented
    dims, parts = _dims(tensors[0], dim), [rows_of(x) for x in tensors]
    if dims is None or not dims.ragged or any(_has_gaps(x) for x in tensors) or len({one.dim for one in parts}) > 1:
        return NotImplemented
    inner = parts[0].dim - 1
    starts = [one.offsets - one.offsets[:1] for one in parts]
    offsets = torch.stack(starts).sum(0, dtype=starts[0].dtype)
    joined = torch.cat([one.values for one in parts], inner)
    made = nested_of(Rows(joined, offsets, None, None, _sum_of_longest(parts), parts[0].dim, None))
    index = _indices_of_joined(parts, offsets, joined.shape[inner])
    return _like(made, joined.index_select(inner, index))


def _sum_of_longest(parts: Sequence[Rows]) -> Tensor | None:
    """An upper bound, as the size of a tensor without elements."""
    known = [one.longest for one in parts]
    if any(one is None for one in known):
        return None
    return torch.cat([one for one in known if one is not None])


def _indices_of_joined(parts: Sequence[Rows], offsets: Tensor, total: Any) -> Tensor:
    """(total,): where in the joined values each element of the joined rows is."""
    columns, before = [offsets[:-1]], torch.zeros_like(offsets[:-1])
    ahead: Any = 0
    for one in parts:  # where the row's part begins in the joined row, and in the values
        columns += [before, _starts(one) + ahead]
        before = before + one.offsets.diff()
        ahead = ahead + one.values.shape[one.dim - 1]
    table = torch.stack(columns, 1)[:, None].expand(-1, total, -1)
    known = aten._padded_dense_to_jagged_forward(table, [offsets], total)
    at = torch.arange(total, device=offsets.device) - known[:, 0]
    found = at - known[:, 1] + known[:, 2]
    for k in range(1, len(parts)):
        found = torch.where(at >= known[:, 2 * k + 1], at - known[:, 2 * k + 1] + known[:, 2 * k + 2], found)
    return found


def _starts(rows: Rows) -> Tensor:
    """The start of each row, with the check of offsets; 0 for empty rows."""
    positions = torch.arange(rows.values.shape[rows.dim - 1], device=rows.offsets.device)
    return aten._jagged_to_padded_dense_forward(positions[:, None], [rows.offsets], [1], 0)[:, 0, 0]


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """One bag for each row of indices."""
    if not is_jagged(input) or input.dim() != 2 or offsets is not None or _has_gaps(input):
        return NotImplemented
    scale = rows_of(per_sample_weights).values if is_jagged(per_sample_weights) else per_sample_weights
    rows = rows_of(input)
    if mode == "max" or max_norm is not None or padding_idx is not None or scale_grad_by_freq or sparse:
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, scale, True, padding_idx)
        return F.embedding_bag(rows.values, weight, rows.offsets, *options)
    if scale is not None and mode != "sum":
        return NotImplemented  # PyTorch's error
    elements = F.embedding(rows.values, weight)
    total = _padded(_view(input, elements if scale is None else elements * scale[:, None]), 0).sum(1)
    return total / _lengths(input, 2).clamp(min=1) if mode == "mean" else total


# By the name of a function of torch, a method or one of torch.nn.functional.
RULES: dict[str, Callable[..., Any]] = {
    "to_padded_tensor": _to_padded,
    "nested_to_padded_tensor": _to_padded,
    "sum": _sum,
    "mean": _mean,
    "var": _spread_of(torch.var, lambda variance, mean: variance),
    "std": _spread_of(torch.std, lambda variance, mean: _deviation(variance)),
    "var_mean": _spread_of(torch.var_mean, lambda variance, mean: (variance, mean)),
    "std_mean": _spread_of(torch.std_mean, lambda variance, mean: (_deviation(variance), mean)),
    "logsumexp": _logsumexp,
    "prod": _prod,
    "max": _extremum("max"),
    "min": _extremum("min"),
    "norm": _norm,
    "linalg_vector_norm": _vector_norm,
    "cumsum": _along(torch.cumsum, 0),
    "cumprod": _along(torch.cumprod, 1),
    "softmax": _softmax(logarithm=False),
    "log_softmax": _softmax(logarithm=True),
    "normalize": _normalize,
    "glu": _glu,
    "sort": _sort,
    "topk": _topk,
    "flip": _flip,
    "narrow": _narrow,
    "select": _select,
    "__getitem__": _getitem,
    "unbind": _unbind,
    "cat": _cat,
    "concat": _cat,
    "concatenate": _cat,
    "embedding_bag": _embedding_bag,
}


def by_rule(name: str, args: Any, kwargs: Any) -> Any:
    """The result of the rule for the function of this name; NotImplemented if there is none."""
    rule = RULES.get(name)
    if rule is None:
        return NotImplemented
    try:
        inspect.signature(rule).bind(*args, **kwargs)
    except TypeError:
        return NotImplemented
    return rule(*args, **kwargs)
