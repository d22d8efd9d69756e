"""The decomposition table: which operators AOTAutograd decomposes, and how."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.decomposition_tables import inductor_table, torch_decompositions
from symshape.frontend.decompositions.broadcasting import expand
from symshape.frontend.decompositions.complex_numbers import copied, joined, silu, to_complex
from symshape.frontend.decompositions.cross_products import cross
from symshape.frontend.decompositions.distances import cdist_backward, cdist_forward, pdist_forward
from symshape.frontend.decompositions.eager_layouts import as_eager
from symshape.frontend.decompositions.filled_tensors import full_like_in_format
from symshape.frontend.decompositions.foreach import foreach_rules
from symshape.frontend.decompositions.grid_sampling import grid_sampler, grid_sampler_backward
from symshape.frontend.decompositions.image_patches import patches_as_windows, sums_of_slices
from symshape.frontend.decompositions.losses import (
    log_sigmoid_without_saved,
    nan_where_operands_are,
    soft_margin_loss_backward,
    zeros_if_empty,
)
from symshape.frontend.decompositions.membership import isin
from symshape.frontend.decompositions.normalisations import (
    group_norm_gradients_zero_if_empty,
    group_norm_of_channels_first,
    with_eager_statistics,
)
from symshape.frontend.decompositions.padding import constant_pad
from symshape.frontend.decompositions.padding_gradients import replication_pad_backward
from symshape.frontend.decompositions.pooling import avg_pool, avg_pool_backward, global_max_pool, max_pool
from symshape.frontend.decompositions.random_numbers import with_eager_draws
from symshape.frontend.decompositions.result_types import with_eager_types
from symshape.frontend.decompositions.rolls import roll_of_empty_dims
from symshape.frontend.decompositions.segments import segment_reduce
from symshape.frontend.decompositions.slice_gradients import whole_if_stepping
from symshape.frontend.decompositions.softmax import (
    log_softmax_of_empty_dims,
    logsumexp_of_empty_dims,
    softmax_of_empty_dims,
)
from symshape.frontend.decompositions.uninitialised_memory import with_filled_memory
from symshape.frontend.decompositions.windows import gradient_of_windows, product_of_windows

aten: Any = torch.ops.aten
Decomposition = Callable[..., Any]
Wrap = Callable[[Decomposition], Decomposition]


def decomposition_table(eager_draws: bool = True) -> dict[Any, Decomposition]:
    """Operator -> decomposition: Inductor's choice, without ``KEPT``, with ``OURS`` and ``CHANGED``, then results laid
    out as in eager mode. ``eager_draws``: operators that draw random numbers are decomposed on other devices than CPUs
    only."""
    table = {op: rule for op, rule in inductor_table().items() if getattr(op, "overloadpacket", op) not in KEPT}
    table |= torch_decompositions(MORE_OF_PYTORCH)
    table |= {**dict(OURS), **foreach_rules()}
    for op, wrap in (*with_eager_types().items(), *CHANGED):
        if op in table:
            table[op] = wrap(table[op])
    table |= with_eager_statistics(table)
    return as_eager(with_filled_memory(with_eager_draws(table) if eager_draws else table))


def _as_strided_copy(x: torch.Tensor, *args: Any) -> torch.Tensor:
    return torch.as_strided(x, *args).clone(memory_format=torch.contiguous_format)


def _with_promoted_type(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``cat``, which leaves out tensors without elements; their types count nevertheless."""

    def decomposition(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
        dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
        return rule([x if x.dtype == dtype else x.to(dtype) for x in tensors], dim)

    return decomposition


def _with_float_bounds(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``clamp``, whose types do not count a bound that is a symbolic float."""

    def decomposition(x: torch.Tensor, *bounds: Any, **named: Any) -> Any:
        real = any(isinstance(bound, torch.SymFloat) for bound in (*bounds, *named.values()))
        whole = not (x.is_floating_point() or x.is_complex())
        return rule(x.to(torch.get_default_dtype()) if real and whole else x, *bounds, **named)

    return decomposition


def _by_tensor_weight(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``lerp``, which asks whether the weight is small: of a symbolic float each element is asked,
    for types in which a tensor's weight is not rounded more than a number."""

    def decomposition(start: torch.Tensor, end: torch.Tensor, weight: Any) -> Any:
        if not isinstance(weight, torch.SymFloat) or start.dtype not in (torch.float32, torch.float64):
            return rule(start, end, weight)
        number = aten.scalar_tensor.default(weight, dtype=start.dtype, device=start.device)
        return aten.lerp.Tensor(start, end, number)

    return decomposition


def _kept_on_cpus(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of a gradient of maxima into a scatter, on GPUs alone: of channels-last images it transposes
    gradient, indices and result, where the operator adds along the channels."""

    def decomposition(gradient: torch.Tensor, *args: Any) -> Any:
        return NotImplemented if gradient.is_cpu else rule(gradient, *args)

    return decomposition


def _in_new_memory(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition into views of an operator that copies: where a size is 1 they would be the operand."""

    def decomposition(x: torch.Tensor, *args: Any) -> Any:
        result = rule(x, *args)
        return result.clone() if x.is_cpu else result

    return decomposition


def _without_negative_indices(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition into an operator that counts negative indices from the end: here they are out of range."""

    def decomposition(x: torch.Tensor, dim: int, index: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        size = x.size(dim) if x.dim() else 1
        return rule(x, dim, torch.where(index < 0, size, index), *args, **kwargs)

    return decomposition


def _within_channel(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``max_unpool``, which flattens all channels into one row: an index outside of its channel is
    out of range, as in eager mode."""

    def decomposition(x: torch.Tensor, index: torch.Tensor, output_size: Sequence[int], *args: Any) -> Any:
        elements = math.prod(output_size)
        outside = (index < 0) | (index >= elements)
        behind = math.prod(x.shape[: -len(output_size)]) * elements
        return rule(x, torch.where(outside, behind, index), output_size, *args)

    return decomposition


def _with_negative_indices(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``index_fill``, which takes negative indices: the decomposition would make an ``index_copy`` of it."""

    def decomposition(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
        if not x.dim():
            return rule(x, dim, index, value)
        filled = value.to(x.dtype) if isinstance(value, torch.Tensor) else x.new_full((), value)
        indices = [None] * (dim % x.dim()) + [index.reshape(-1)]
        return torch.ops.aten.index_put.default(x, indices, filled)

    return decomposition


def _without_guard_on_windows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of adaptive pooling, which guards on windows being equal, with a graph for each outcome. In
    both cases it would be a library call, except for one window over everything: its size is a constant before PyTorch
    2.13, and of several NaN it returns the index of another one than eager mode."""

    def decomposition(x: torch.Tensor, output_size: Sequence[int]) -> Any:
        if all(isinstance(size, int) and size == 1 for size in output_size):
            return global_max_pool(x, len(output_size))
        known = all(isinstance(size, int) for size in (*x.shape[-len(output_size) :], *output_size))
        return rule(x, output_size) if known else NotImplemented

    return decomposition


# Operators that stay calls although Inductor takes them apart.
KEPT = (
    # Its parts in Inductor's form have no kernels here, and run slower than the operator.
    aten.max_pool3d_with_indices,
    aten.embedding_dense_backward,  # its parts fill a table with zeros, copy it, and add to it row by row in one thread
    aten.index_select,  # what it becomes takes negative indices
    aten.add,  # its parts copy complex numbers twice, to add them as pairs
    aten.threshold,  # its parts compare integers with a fraction, which eager mode cuts off first
    aten.round,  # its parts multiply by 0.01
    # Their decompositions ask whether they are small: a graph of its own for up to 16 rows of a layer with one output.
    aten.mm,
    aten.addmm,
)

# Decompositions of PyTorch's that Inductor does not choose.
MORE_OF_PYTORCH = (aten.glu, aten._unsafe_masked_index, aten._unsafe_masked_index_put_accumulate)

# Operator, decomposition. One line for each.
OURS: tuple[tuple[Any, Decomposition], ...] = (
    (aten.replication_pad1d_backward.default, replication_pad_backward),
    (aten.replication_pad2d_backward.default, replication_pad_backward),
    (aten.replication_pad3d_backward.default, replication_pad_backward),
    (aten.constant_pad_nd.default, constant_pad),
    (aten.grid_sampler_2d.default, grid_sampler),
    (aten.grid_sampler_3d.default, grid_sampler),
    (aten.grid_sampler_2d_backward.default, grid_sampler_backward),
    (aten.grid_sampler_3d_backward.default, grid_sampler_backward),
    (aten.as_strided_copy.default, _as_strided_copy),
    (aten.soft_margin_loss_backward.default, soft_margin_loss_backward),
    (aten.complex.default, joined),
    (aten.copy.default, copied),
    (aten._cdist_forward.default, cdist_forward),
    (aten._cdist_backward.default, cdist_backward),
    (aten._pdist_forward.default, pdist_forward),
    (aten.max_pool2d_with_indices.default, max_pool),
    (aten.avg_pool2d.default, avg_pool),
    (aten.avg_pool3d.default, avg_pool),
    (aten.avg_pool2d_backward.default, avg_pool_backward),
    (aten.avg_pool3d_backward.default, avg_pool_backward),
    (aten.isin.Tensor_Tensor, isin),
    (aten.linalg_cross.default, cross),
    (aten.segment_reduce.default, segment_reduce),
    (aten.expand.default, expand),
)

# Operator, what makes a decomposition of the one that it has. Applied in this order.
CHANGED: tuple[tuple[Any, Wrap], ...] = (
    (aten.full_like.default, full_like_in_format),
    (aten._to_copy.default, to_complex),
    (aten.silu.default, silu),
    (aten.logsumexp.default, logsumexp_of_empty_dims),
    (aten._softmax.default, softmax_of_empty_dims),
    (aten._log_softmax.default, log_softmax_of_empty_dims),
    (aten.roll.default, roll_of_empty_dims),
    (aten.native_group_norm.default, group_norm_of_channels_first),
    (aten.adaptive_max_pool2d.default, _without_guard_on_windows),
    (aten.adaptive_max_pool3d.default, _without_guard_on_windows),
    (aten.index_add.default, _without_negative_indices),
    (aten.index_copy.default, _without_negative_indices),
    (aten.clamp.default, _with_float_bounds),
    (aten.clamp_min.default, _with_float_bounds),
    (aten.clamp_max.default, _with_float_bounds),
    (aten.cat.default, _with_promoted_type),
    (aten.lerp.Scalar, _by_tensor_weight),
    (aten.max_unpool2d.default, _within_channel),
    (aten.max_unpool3d.default, _within_channel),
    (aten.channel_shuffle.default, _in_new_memory),
    (aten.im2col.default, patches_as_windows),
    (aten.col2im.default, sums_of_slices),
    (aten.mv.default, product_of_windows),
    (aten.unfold_backward.default, gradient_of_windows),
    (aten.index_fill.int_Scalar, _with_negative_indices),
    (aten.index_fill.int_Tensor, _with_negative_indices),
    (aten.smooth_l1_loss_backward.default, nan_where_operands_are),
    (aten.max_pool2d_with_indices_backward.default, _kept_on_cpus),
    (aten.slice_backward.default, whole_if_stepping),
    (aten.mse_loss_backward.default, zeros_if_empty),
    (aten.smooth_l1_loss_backward.default, zeros_if_empty),
    (aten.huber_loss_backward.default, zeros_if_empty),
    (aten.soft_margin_loss_backward.default, zeros_if_empty),
    (aten.log_sigmoid_backward.default, log_sigmoid_without_saved),
    (aten.native_group_norm_backward.default, group_norm_gradients_zero_if_empty),
)
