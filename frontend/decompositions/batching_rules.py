"""Batching rules (``vmap``) for batches of any size.

PyTorch's C++ batching rules specialise sizes. These are the same rules in Python: the batch is folded into a dim that
the operator treats pointwise, or the operator is decomposed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from symshape.frontend.bridge.batches import Batch, NoRule
from symshape.frontend.bridge.operators import schema_of
from symshape.frontend.decompositions.real_parameters import nanquantile, quantile

aten: Any = torch.ops.aten
Rule = Callable[..., Any]


# --- along a dim -----------------------------------------------------------------------------------------------------


def _behind_batch(dim: int, rank: int) -> int:
    """The index of a sample's dim in a tensor with the batch as dim 0."""
    return dim + 1 if dim >= 0 else dim + max(rank, 1) + 1


def _along(op: Any) -> Rule:
    """A rule of operators like ``gather``: tensors of one rank, along a dim."""

    def rule(b: Batch, x: Tensor, dim: int, index: Tensor, *rest: Any, **options: Any) -> Tensor:
        if schema_of(op).is_mutable and not b.has(x):
            raise NoRule
        like = index if op is aten.gather.default else x
        rows = [_with_rank(b.full(one), 2) if isinstance(one, Tensor) else one for one in (x, index, *rest)]
        found: Tensor = op(rows[0], _behind_batch(dim, b.rank(x)), *rows[1:], **options)
        return found if b.rank(like) else found[:, 0]

    return rule


def _index_select(b: Batch, x: Tensor, dim: int, index: Tensor) -> Tensor:
    place = _behind_batch(dim, b.rank(x))
    if b.rank(x) == 0:
        raise NoRule
    if not b.has(index):
        return aten.index_select.default(x, place, index)
    return aten.gather.default(b.full(x), place, _indices_along(b, b.full(x), place, index))


def _indices_along(b: Batch, x: Tensor, place: int, index: Tensor) -> Tensor:
    """Indices of whole slices as those of elements: ``index`` has one row for each in the batch."""
    rows = index if index.dim() == 2 else index[:, None]
    shape = [b.size, *(1 for _ in x.shape[1:place]), rows.shape[1], *(1 for _ in x.shape[place + 1 :])]
    sizes = [*x.shape[:place], rows.shape[1], *x.shape[place + 1 :]]
    return rows.reshape(shape).expand(sizes)


# --- a batch in the first dim ----------------------------------------------------------------------------------------


def _folded(op: Any, dims: int, tensors: int = 1) -> Rule:
    """A rule of operators that treat samples independently: the first ``tensors`` arguments are ``[samples, channels,
    ...]`` with ``dims`` further dims, or have no dim of samples."""

    def rule(b: Batch, *args: Any, **options: Any) -> Any:
        full = [b.full(one) for one in args[:tensors]]
        samples = full[0].shape[1] if full[0].dim() == dims + 3 else None
        if samples is not None:
            full = [one.flatten(0, 1) for one in full]
        return _unfolded(op(*full, *args[tensors:], **options), b.size, samples)

    return rule


def _folded_to_size(op: Any, dims: int, position: int) -> Rule:
    """``_folded`` of the gradient of what gets the size of its result at ``position``, with the samples in it."""
    folded = _folded(op, dims)

    def rule(b: Batch, *args: Any, **options: Any) -> Any:
        samples, *rest = args[position]
        return folded(b, *args[:position], [b.size * samples, *rest], *args[position + 1 :], **options)

    return rule


def _unfolded(result: Any, size: Any, samples: Any) -> Any:
    if samples is None or result is None:
        return result
    if isinstance(result, Tensor):
        return result.unflatten(0, (size, samples))
    return type(result)(_unfolded(one, size, samples) for one in result)


def _in_front(op: Any) -> Rule:
    """A rule of operators that take any number of leading batch dims."""

    def rule(b: Batch, x: Tensor, *args: Any, **options: Any) -> Any:
        return op(x, *args, **options)

    return rule


def _grid_gradient(op: Any, dims: int) -> Rule:
    def rule(b: Batch, *args: Any) -> Any:
        full = [b.full(one).flatten(0, 1) for one in args[:3]]
        samples = b.full(args[1]).shape[1]
        return tuple(None if one is None else one.unflatten(0, (b.size, samples)) for one in op(*full, *args[3:]))

    return rule


# --- convolutions ----------------------------------------------------------------------------------------------------


def _convolution(b: Batch, x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """``options``: stride, padding, dilation, whether it is transposed, padding of the result, groups."""
    groups, dims = options[-1], b.rank(weight) - 2
    if b.rank(x) != dims + 2:
        raise NoRule
    added = bias is not None and (b.has(bias) or b.has(weight))
    if not b.has(weight):
        folded, samples = (x.flatten(0, 1), x.shape[1]) if b.has(x) else (x, None)
        found = aten.convolution.default(folded, weight, None if added else bias, *options)
        found = found.unflatten(0, (b.size, samples)) if samples is not None else b.full(found)
    else:
        found = aten.convolution.default(
            _channels_of_all(b.full(x)), weight.flatten(0, 1), None, *options[:-1], groups * b.size
        )
        found = found.unflatten(1, (b.size, found.shape[1] // b.size)).movedim(1, 0)
    if not added or bias is None:
        return found
    return found + b.full(bias).view(b.size, 1, bias.shape[-1], *(1 for _ in range(dims)))


def _channels_of_all(x: Tensor) -> Tensor:
    """``[batch, samples, channels, ...]`` as samples of all channels."""
    return x.movedim(0, 1).flatten(1, 2)


def _convolution_backward(
    b: Batch, grad: Tensor, x: Tensor, weight: Tensor, bias: Any, *options: Any
) -> tuple[Tensor | None, ...]:
    *rest, groups, wanted = options
    dims = b.rank(weight) - 2
    if b.rank(x) != dims + 2:
        raise NoRule
    grad = b.full(grad)
    of_x = of_weight = of_bias = None
    if wanted[0] and not b.has(weight):
        samples = grad.shape[1]
        flat = [grad.flatten(0, 1), b.full(x).flatten(0, 1), weight]
        of_x = aten.convolution_backward.default(*flat, bias, *rest, groups, [True, False, False])[0]
        of_x = of_x.unflatten(0, (b.size, samples))
    left = [wanted[0] and of_x is None, wanted[1], False]
    if left[0] or left[1]:
        x, weight = b.full(x), b.full(weight)
        flat = [_channels_of_all(grad), _channels_of_all(x), weight.flatten(0, 1)]
        first, second, _ = aten.convolution_backward.default(*flat, None, *rest, groups * b.size, left)
        of_x = first.unflatten(1, (b.size, x.shape[2])).movedim(1, 0) if left[0] else of_x
        of_weight = second.unflatten(0, (b.size, weight.shape[1])) if left[1] else None
    if wanted[2]:
        of_bias = grad.sum([1, *range(3, grad.dim())])
    return of_x, of_weight, of_bias


# --- above the layers of torch.func ----------------------------------------------------------------------------------


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Three dims become a matrix, as in C++, which reads them as numbers."""
    if bias is None or x.dim() != 3:
        raise NoRule
    found: Tensor = aten.linear.default(x.flatten(0, 1), weight, bias)
    return found.unflatten(0, x.shape[:2])


def _bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    sizes = [one.dim() for one in (x1, x2, weight)]
    if sizes[0] != sizes[1] or sizes[2] != 3:
        raise NoRule
    found = torch.einsum("...i,oij,...j->...o", x1, weight, x2)
    return found if bias is None else found + bias


# Operators that C++ takes apart before a batch is looked at.
ABOVE_LAYERS: dict[Any, Rule] = {
    aten.linear.default: _linear,
    aten.bilinear.default: _bilinear,
    aten.quantile.scalar: quantile,
    aten.nanquantile.scalar: nanquantile,
}


# --- others ----------------------------------------------------------------------------------------------------------


def _linalg_solve(b: Batch, a: Tensor, y: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    ranks = b.rank(a), b.rank(y)
    sizes = a.shape[b.has(a) : -1], y.shape[b.has(y) :]
    is_vector = ranks[1] == 1 or ranks[1] == ranks[0] - 1 and all(map(operator.eq, *sizes))
    rank = max(ranks[0], ranks[1] + is_vector)
    column = b.full(y).unsqueeze(-1) if is_vector else b.full(y)
    full = [_with_rank(b.full(a), rank + 1), _with_rank(column, rank + 1)]
    result, *rest = aten._linalg_solve_ex.default(*full, left=left, check_errors=check_errors)
    return (result.squeeze(-1) if is_vector else result, *rest)


def _linalg_lstsq(b: Batch, a: Tensor, y: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    if b.rank(a) < 2 or b.rank(a) != b.rank(y) or not a.is_cpu or driver not in (None, "gelsy"):
        raise NoRule
    solution, residuals, rank, values = aten.linalg_lstsq.default(b.full(a), b.full(y), rcond, driver=driver)
    return solution, residuals.expand(b.size, 0), rank, values.expand(b.size, 0)  # this driver has two of them


def _with_rank(x: Tensor, rank: int) -> Tensor:
    """A tensor with dims of size 1 inserted after the batch dim, up to a rank."""
    return x[(slice(None), *(None for _ in range(rank - x.dim())))]


def _searchsorted(b: Batch, rows: Tensor, values: Tensor, **options: Any) -> Tensor:
    sorter = options.pop("sorter", None)
    sorter = None if sorter is None else b.full(sorter)
    of_one = b.rank(rows) == 1
    found = b.full(values)
    if of_one:
        found = found.reshape(b.size, functools.reduce(operator.mul, found.shape[1:], 1))
    found = aten.searchsorted.Tensor(b.full(rows), found, sorter=sorter, **options)
    return found.reshape(b.full(values).shape) if of_one else found


def _linalg_cross(b: Batch, x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    return aten.linalg_cross.default(b.full(x), b.full(y), dim=_behind_batch(dim, b.rank(x)))


def _take_along_dim(b: Batch, x: Tensor, index: Tensor, dim: int | None = None) -> Tensor:
    if dim is None or b.rank(x) != b.rank(index) or b.rank(x) == 0:
        raise NoRule
    return aten.take_along_dim.default(b.full(x), b.full(index), _behind_batch(dim, b.rank(x)))


def _cat(b: Batch, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    ranks = {b.rank(x) for x in tensors}
    if len(ranks) != 1:
        raise NoRule  # an empty one is left out
    return aten.cat.default([b.full(x) for x in tensors], _behind_batch(dim, ranks.pop()))


def _slice_scatter(b: Batch, x: Tensor, y: Tensor, dim: int = 0, *bounds: Any, **named: Any) -> Tensor:
    return aten.slice_scatter.default(b.full(x), b.full(y), _behind_batch(dim, b.rank(x)), *bounds, **named)


def _select_scatter(b: Batch, x: Tensor, y: Tensor, dim: int, index: int) -> Tensor:
    return aten.select_scatter.default(b.full(x), b.full(y), _behind_batch(dim, b.rank(x)), index)


def _diagonal_scatter(b: Batch, x: Tensor, y: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    dims = [_behind_batch(dim, b.rank(x)) for dim in (dim1, dim2)]
    return aten.diagonal_scatter.default(b.full(x), b.full(y), offset, *dims)


def _householder_product(b: Batch, x: Tensor, tau: Tensor) -> Tensor:
    return aten.linalg_householder_product.default(b.full(x), b.full(tau))


def _log_sigmoid_backward(b: Batch, grad: Tensor, x: Tensor, saved: Tensor) -> Tensor:
    """Not taken apart: what was saved has no tangent, so a derivative of the parts would lack one."""
    return aten.log_sigmoid_backward.default(b.full(grad), b.full(x), b.full(saved))


def _binary_cross_entropy(b: Batch, x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1) -> Tensor:
    full = _loss_operands(b, x, target, weight)
    found: Tensor = aten.binary_cross_entropy.default(*full, 0)
    if reduction == 0:
        return found
    rows = found.flatten(1) if found.dim() > 1 else found[:, None]
    return rows.mean(1) if reduction == 1 else rows.sum(1)


def _binary_cross_entropy_backward(
    b: Batch, grad: Tensor, x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1
) -> Tensor:
    x, target, weight = _loss_operands(b, x, target, weight)
    grad = b.full(grad)
    grad = grad if reduction == 0 else _with_rank(grad, x.dim()).expand(x.shape)
    found: Tensor = aten.binary_cross_entropy_backward.default(grad, x, target, weight, 0)
    return found / functools.reduce(operator.mul, found.shape[1:], 1) if reduction == 1 else found


def _loss_operands(b: Batch, x: Tensor, target: Tensor, weight: Any) -> tuple[Tensor, Tensor, Any]:
    rank = max(b.rank(x), b.rank(target)) + 1
    x, target = torch.broadcast_tensors(*(_with_rank(b.full(one), rank) for one in (x, target)))
    return x, target, None if weight is None else _with_rank(b.full(weight), rank).expand(x.shape)


def _new_empty_strided(b: Batch, x: Tensor, size: Sequence[Any], stride: Sequence[Any], **options: Any) -> Tensor:
    length = functools.reduce(operator.add, ((n - 1) * step for n, step in zip(size, stride)), 1)
    return aten.new_empty_strided.default(x, [b.size, *size], [length, *stride], **options)


def _as_strided(b: Batch, x: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Tensor:
    """An offset is that of the first in the batch."""
    return aten.as_strided.default(x, [b.size, *size], [x.stride(0), *stride], offset)


def _masked_scatter(b: Batch, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Where the mask holds: the element of the source whose index is the number of true elements before it."""
    rank = max(b.rank(x), b.rank(mask))
    x, mask = torch.broadcast_tensors(*(_with_rank(b.full(one), rank + 1) for one in (x, mask)))
    source, before = b.full(source).flatten(1), mask.flatten(1).cumsum(1) - 1
    picked = source.gather(1, before.clamp(min=0)).view_as(x)
    return torch.where(mask, picked, x)


def _attention(b: Batch, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Tensor:
    names = ("attn_mask", "dropout_p", "is_causal")
    options |= dict(zip(names, rest))
    if options.get("dropout_p"):
        raise NoRule
    rank = max(map(b.rank, (q, k, v)))
    full = [_with_rank(b.full(x), rank + 1) for x in (q, k, v)]
    mask = options.pop("attn_mask", None)
    if mask is not None:
        mask = _with_rank(b.full(mask), rank + 1)
    if rank == 4:
        samples = full[0].shape[1]
        full = [x.flatten(0, 1) for x in full]
        mask = mask if mask is None else mask.expand(b.size, samples, *mask.shape[2:]).flatten(0, 1)
        found = aten.scaled_dot_product_attention.default(*full, mask, **options)
        return found.unflatten(0, (b.size, samples))
    return aten.scaled_dot_product_attention.default(*full, mask, **options)


def _cpu_attention(op: Any, tensors: int) -> Rule:
    """A rule of the CPU attention operator and its gradient: the first ``tensors`` arguments are samples of heads."""

    def rule(b: Batch, *args: Any, attn_mask: Tensor | None = None, **options: Any) -> Any:
        full = [b.full(x) for x in args[:tensors]]
        samples = full[0].shape[1]
        if attn_mask is not None and (b.has(attn_mask) or attn_mask.dim() == 4):
            mask = _with_rank(b.full(attn_mask), 5)
            attn_mask = mask.expand(b.size, samples, *mask.shape[2:]).flatten(0, 1)
        flat = [x.flatten(0, 1) for x in full]
        found = op(*flat, *args[tensors:], attn_mask=attn_mask, **options)
        return tuple(_unfolded(list(found), b.size, samples))

    return rule


def _with_number(op: Any) -> Rule:
    """A rule of pointwise operators: C++ makes a tensor of a symbolic number, which has no value in a trace."""

    def rule(b: Batch, x: Any, y: Any, **options: Any) -> Tensor:
        if not isinstance(x, torch.SymInt | torch.SymFloat) and not isinstance(y, torch.SymInt | torch.SymFloat):
            raise NoRule
        found: Tensor = op(x, y, **options)
        return found

    return rule


def _embedding_backward(
    b: Batch, grad: Tensor, indices: Tensor, rows: Any, padding: int, scale_grad_by_freq: bool
) -> Tensor:
    if scale_grad_by_freq:
        raise NoRule
    grad, indices = b.full(grad), b.full(indices)
    width = grad.shape[-1]
    grad = torch.where((indices == padding).unsqueeze(-1), 0, grad).reshape(b.size, -1, width)
    places = indices.reshape(b.size, -1, 1).expand(grad.shape)
    return grad.new_zeros(b.size, rows, width).scatter_add(1, places, grad)


def _max_pool_backward(op: Any, dims: int) -> Rule:
    """The positions of the largest elements are the last argument."""
    folded = _folded(lambda grad, x, places, *options: op(grad, x, *options, places), dims, 3)

    def rule(b: Batch, grad: Tensor, x: Tensor, *options: Any) -> Any:
        return folded(b, grad, x, options[-1], *options[:-1])

    return rule


def _masked_scatter_backward(b: Batch, grad: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    rank = max(b.rank(grad), b.rank(mask))
    grad, mask = torch.broadcast_tensors(*(_with_rank(b.full(one), rank + 1) for one in (grad, mask)))
    values = torch.where(mask, grad, 0).flatten(1)
    before = (mask.flatten(1).cumsum(1) - 1).clamp(min=0)
    zeros = grad.new_zeros(b.size, functools.reduce(operator.mul, sizes, 1))
    return zeros.scatter_add(1, before, values).view(b.size, *sizes)


# --- tables ----------------------------------------------------------------------------------------------------------


def batching_rules() -> dict[Any, Rule]:
    """Operator -> ``rule(batch, *args)``, for ``batching_kernel``."""
    along: Sequence[Any] = (
        aten.gather.default,
        aten.scatter.src,
        aten.scatter.value,
        aten.scatter.reduce,
        aten.scatter.value_reduce,
        aten.scatter_add.default,
        aten.scatter_reduce.two,
        aten.scatter_.src,
        aten.scatter_.value,
        aten.scatter_add_.default,
        aten.scatter_reduce_.two,
    )
    folded = {op: _folded(op, dims, tensors) for dims, tensors, ops in _FOLDED for op in ops}
    sized = {op: _folded_to_size(op, dims, 2) for dims, op in _FOLDED_TO_SIZE}
    in_front = (aten.pixel_shuffle.default, aten.pixel_unshuffle.default)
    return {
        **{op: _along(op) for op in along},
        **folded,
        **sized,
        **{op: _in_front(op) for op in in_front},
        aten.grid_sampler_2d_backward.default: _grid_gradient(aten.grid_sampler_2d_backward.default, 2),
        aten.grid_sampler_3d_backward.default: _grid_gradient(aten.grid_sampler_3d_backward.default, 3),
        aten.index_select.default: _index_select,
        aten.convolution.default: _convolution,
        aten.convolution_backward.default: _convolution_backward,
        aten._linalg_solve_ex.default: _linalg_solve,
        aten.linalg_lstsq.default: _linalg_lstsq,
        aten.searchsorted.Tensor: _searchsorted,
        aten.linalg_cross.default: _linalg_cross,
        aten.take_along_dim.default: _take_along_dim,
        aten.cat.default: _cat,
        aten.slice_scatter.default: _slice_scatter,
        aten.select_scatter.default: _select_scatter,
        aten.diagonal_scatter.default: _diagonal_scatter,
        aten.linalg_householder_product.default: _householder_product,
        aten.log_sigmoid_backward.default: _log_sigmoid_backward,
        aten.binary_cross_entropy.default: _binary_cross_entropy,
        aten.binary_cross_entropy_backward.default: _binary_cross_entropy_backward,
        aten.new_empty_strided.default: _new_empty_strided,
        aten.as_strided.default: _as_strided,
        aten.masked_scatter.default: _masked_scatter,
        aten.masked_scatter_backward.default: _masked_scatter_backward,
        aten.embedding_dense_backward.default: _embedding_backward,
        **{op: _max_pool_backward(op, dims) for op, dims in _MAX_POOL_BACKWARD.items()},
        **{op: _with_number(op) for op in _ARITHMETIC},
        aten.scaled_dot_product_attention.default: _attention,
        _FLASH: _cpu_attention(_FLASH, 3),
        _FLASH_BACKWARD: _cpu_attention(_FLASH_BACKWARD, 6),
    }


_MAX_POOL_BACKWARD = {
    aten.max_pool2d_with_indices_backward.default: 2,
    aten.max_pool3d_with_indices_backward.default: 3,
}

_ARITHMETIC = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.rsub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.div.Tensor_mode,
    aten.floor_divide.default,
    aten.remainder.Tensor,
    aten.fmod.Tensor,
)

_FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
_FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default

# (dims behind channels, how many tensors come first, operators)
_FOLDED: tuple[tuple[int, int, tuple[Any, ...]], ...] = (
    (
        1,
        1,
        (
            aten.reflection_pad1d.default,
            aten.replication_pad1d.default,
            aten.upsample_nearest1d.default,
            aten.upsample_nearest1d.vec,
            aten.upsample_linear1d.default,
            aten.upsample_linear1d.vec,
            aten._upsample_nearest_exact1d.default,
            aten._upsample_nearest_exact1d.vec,
            aten.max_pool1d.default,
            aten.avg_pool1d.default,
        ),
    ),
    (
        2,
        1,
        (
            aten.avg_pool2d.default,
            aten.adaptive_avg_pool2d.default,
            aten._adaptive_avg_pool2d.default,
            aten.adaptive_max_pool2d.default,
            aten.max_pool2d.default,
            aten.max_pool2d_with_indices.default,
            aten.reflection_pad2d.default,
            aten.replication_pad2d.default,
            aten.upsample_nearest2d.default,
            aten.upsample_nearest2d.vec,
            aten.upsample_bilinear2d.default,
            aten.upsample_bilinear2d.vec,
            aten.upsample_bicubic2d.default,
            aten.upsample_bicubic2d.vec,
            aten._upsample_nearest_exact2d.default,
            aten._upsample_nearest_exact2d.vec,
            aten._upsample_bilinear2d_aa.default,
            aten._upsample_bilinear2d_aa.vec,
            aten._upsample_bicubic2d_aa.default,
            aten._upsample_bicubic2d_aa.vec,
            aten.im2col.default,
            aten.channel_shuffle.default,
        ),
    ),
    (1, 1, (aten.col2im.default,)),
    (1, 2, (aten.reflection_pad1d_backward.default, aten.replication_pad1d_backward.default)),
    (
        2,
        2,
        (
            aten.avg_pool2d_backward.default,
            aten._adaptive_avg_pool2d_backward.default,
            aten.reflection_pad2d_backward.default,
            aten.replication_pad2d_backward.default,
            aten.grid_sampler_2d.default,
        ),
    ),
    (2, 3, (aten.adaptive_max_pool2d_backward.default,)),
    (
        3,
        1,
        (
            aten.avg_pool3d.default,
            aten.adaptive_avg_pool3d.default,
            aten._adaptive_avg_pool3d.default,
            aten.adaptive_max_pool3d.default,
            aten.max_pool3d.default,
            aten.max_pool3d_with_indices.default,
            aten.reflection_pad3d.default,
            aten.replication_pad3d.default,
            aten.upsample_nearest3d.default,
            aten.upsample_nearest3d.vec,
            aten.upsample_trilinear3d.default,
            aten.upsample_trilinear3d.vec,
            aten._upsample_nearest_exact3d.default,
            aten._upsample_nearest_exact3d.vec,
        ),
    ),
    (
        3,
        2,
        (
            aten.avg_pool3d_backward.default,
            aten._adaptive_avg_pool3d_backward.default,
            aten.reflection_pad3d_backward.default,
            aten.replication_pad3d_backward.default,
            aten.grid_sampler_3d.default,
        ),
    ),
    (3, 3, (aten.adaptive_max_pool3d_backward.default,)),
)

_FOLDED_TO_SIZE = (
    (1, aten.upsample_nearest1d_backward.default),
    (1, aten.upsample_linear1d_backward.default),
    (1, aten._upsample_nearest_exact1d_backward.default),
    (2, aten.upsample_nearest2d_backward.default),
    (2, aten.upsample_bilinear2d_backward.default),
    (2, aten.upsample_bicubic2d_backward.default),
    (2, aten._upsample_nearest_exact2d_backward.default),
    (2, aten._upsample_bilinear2d_aa_backward.default),
    (2, aten._upsample_bicubic2d_aa_backward.default),
    (3, aten.upsample_nearest3d_backward.default),
    (3, aten.upsample_trilinear3d_backward.default),
    (3, aten._upsample_nearest_exact3d_backward.default),
)

# Traced by PyTorch's decompositions for each in the batch, as are operators that it has no batching rule for.
TAKEN_APART = (
    aten.native_layer_norm.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm.default,
    aten.native_group_norm_backward.default,
    aten.native_batch_norm.default,
    aten.native_batch_norm_backward.default,
    aten.gelu_backward.default,
    aten.glu_backward.default,
    aten.index_add.default,
    aten.index_add_.default,
    aten.index_copy.default,
    aten.index_copy_.default,
    aten.index_fill.int_Scalar,
    aten.index_fill.int_Tensor,
    aten.index_fill_.int_Scalar,
    aten.index_fill_.int_Tensor,
    aten.block_diag.default,
    aten.embedding.default,
    aten.select_backward.default,
    aten.slice_backward.default,
    aten.diagonal_backward.default,
)

# Without a batching rule PyTorch runs an operator for one in the batch after the other. Of these it has one in C++ that
# is made of others.
COMPOSITE = (
    aten.affine_grid_generator_backward.default,
    aten.column_stack.default,
    aten.cummaxmin_backward.default,
    aten.diagflat.default,
    aten.fake_quantize_per_channel_affine.default,
    aten.fake_quantize_per_tensor_affine.default,
    aten.fake_quantize_per_tensor_affine.tensor_qparams,
    aten.infinitely_differentiable_gelu_backward.default,
    aten.isclose.default,
    aten.kl_div.default,
    aten.linalg_cond.p_str,
    aten.linalg_matrix_rank.default,
    aten.linalg_pinv.rcond_tensor,
    aten.linalg_tensorsolve.default,
    aten.lu_solve.default,
    aten.matrix_exp_backward.default,
    aten.multilabel_margin_loss.default,
    aten.native_channel_shuffle.default,
    aten.norm_except_dim.default,
    aten.trace_backward.default,
    aten.triplet_margin_loss.default,
    aten.vander.default,
    aten._weight_norm.default,
)
