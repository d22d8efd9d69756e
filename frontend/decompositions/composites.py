"""Composite operators whose C++ code guards on sizes: decomposed without a guard.

For constant sizes the original rules are used. A result that is a view of its operand is one here too.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.layouts import is_channels_last
from symshape.frontend.bridge.operators import AutogradKernel, in_transform
from symshape.frontend.bridge.running_operators import without_modes
from symshape.frontend.bridge.shortcuts import run_in_full
from symshape.frontend.bridge.symbolic_sizes import assert_equal, has_unbacked_sizes, is_unbacked, known_equal
from symshape.frontend.bridge.tracing_errors import RefusedCall
from symshape.frontend.decompositions.broadcasting import repeated, with_equal_batches
from symshape.frontend.decompositions.built_matrices import matrix_kernels
from symshape.frontend.decompositions.complex_numbers import Polar
from symshape.frontend.decompositions.distances import norm_of_order
from symshape.frontend.decompositions.integer_parameters import is_class
from symshape.frontend.decompositions.packed_sequences import packed_kernels
from symshape.frontend.decompositions.padding import pad_circular
from symshape.frontend.decompositions.pooling import MOST
from symshape.frontend.decompositions.recurrent import recurrent_kernels
from symshape.frontend.decompositions.symbolic_scalars import is_differentiated, scalar_kernels
from symshape.frontend.decompositions.upsampling import upsampling_kernels
from symshape.frontend.opaque_calls.write_calls import text_of
from symshape.runtime.opaque_call import opaque_call

aten: Any = torch.ops.aten
_torch: Any = torch  # it has no types


def composite_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    return {
        aten.tensor_split.sections: _tensor_split,
        aten.tensor_split.indices: _tensor_split_at,
        aten.hsplit.int: _hsplit,
        aten.vsplit.int: _vsplit,
        aten.dsplit.int: _dsplit,
        aten.sum_to_size.default: _sum_to_size,
        aten.mm.default: _mm,
        aten.addmm.default: _addmm,
        aten.polygamma_.default: _polygamma_,
        aten.dropout.default: _dropout,
        aten.one_hot.default: _one_hot,
        aten.repeat_interleave.self_Tensor: _repeat_interleave,
        aten.polar.default: _polar,
        aten.take_along_dim.default: _take_along_dim,
        aten.index_fill.int_Tensor: _index_fill,
        aten.channel_shuffle.default: _channel_shuffle,
        aten._pad_circular.default: pad_circular,
        aten.max_pool1d.default: _max_pool1d,
        aten.affine_grid_generator.default: _affine_grid,
        aten.addmv.default: _addmv,
        aten.fake_quantize_per_tensor_affine_cachemask_backward.default: _of_fake_quantized,
        aten.fake_quantize_per_channel_affine_cachemask_backward.default: _of_fake_quantized,
        aten.ctc_loss.Tensor: _ctc_loss,
        aten.scaled_dot_product_attention.default: _attention,
        aten.linalg_vector_norm.default: _norm,
        aten.group_norm.default: _group_norm,
        aten.nll_loss_nd.default: _nll_loss,
        aten.cross_entropy_loss.default: _cross_entropy,
        aten.bilinear.default: _bilinear,
        aten.cdist.default: _cdist,
        aten.cosine_similarity.default: _cosine_similarity,
        **dict.fromkeys(_WITH_SHORTCUTS, run_in_full),
        **dict.fromkeys(_EXTREMA, _of_nonempty),
        **matrix_kernels(),
        **upsampling_kernels(),
        **packed_kernels(),
        **recurrent_kernels(),
        **scalar_kernels(),
    }


def _bilinear(
    original: Any, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> Any:
    """``x`` (..., I), ``y`` (..., J), ``weight`` (O, I, J): (..., O). C++ guards on emptiness, and loops over O.
    ``original`` raises the errors."""
    ranks = x.dim() == y.dim() >= 1 and weight.dim() == 3
    if not ranks or not any(map(is_general, (*x.shape, *y.shape, *weight.shape))) or x.dtype != y.dtype:
        return original(x, y, weight, bias)
    pairs = (*zip(x.shape[:-1], y.shape), (x.shape[-1], weight.shape[1]), (y.shape[-1], weight.shape[2]))
    if not all(known_equal(a, b) or bool(a == b) for a, b in pairs) or bool(weight.shape[1] * weight.shape[2] == 0):
        return original(x, y, weight, bias)
    products = torch.tensordot(x, weight, ([-1], [1])) * y.unsqueeze(-2)
    summed = products.sum(-1)
    return summed if bias is None else summed + bias


def _cdist(original: Any, x: torch.Tensor, y: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return run_in_full(original, *with_equal_batches(x, y), *args, **kwargs)


def _cosine_similarity(original: Any, x: torch.Tensor, y: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """C++ asks of each size of operands that are broadcast whether it is 1."""
    is_broadcast = x.dim() != y.dim() or not all(map(known_equal, x.shape, y.shape))
    if is_broadcast and any(map(is_general, (*x.shape, *y.shape))):
        x, y = torch.broadcast_tensors(*repeated([x, y]))
    return original(x, y, *args, **kwargs)


def _take_along_dim(original: Any, x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    """``gather`` of operands that are expanded where a guard says so: C++ expands to constant sizes. ``original``
    raises the errors."""
    rank, sizes = x.dim(), (*x.shape, *indices.shape)
    if not any(map(is_general, sizes)) or any(map(is_unbacked, sizes)) or indices.dtype != torch.int64:
        return original(x, indices, dim)
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    if rank != indices.dim() or not -rank <= dim < rank:
        return original(x, indices, dim)
    wide, places = list(x.shape), list(indices.shape)
    for i in range(rank):
        if i != dim % rank and not known_equal(wide[i], places[i]) and not bool(wide[i] == places[i]):
            if places[i] == 1:
                places[i] = wide[i]
            elif wide[i] == 1:
                wide[i] = places[i]
            else:
                return original(x, indices, dim)
    return x.expand(wide).gather(dim, _within(indices, x.size(dim)).expand(places))


def _within(indices: torch.Tensor, size: Any) -> torch.Tensor:
    """The indices along a dim that this version of PyTorch reads at."""
    return indices.remainder(size) if _take_along_dim_wraps() else indices


@functools.cache
def _take_along_dim_wraps() -> bool:
    """Whether an index counts modulo the size, as in PyTorch 2.13; else one out of range is an error."""
    with without_modes():
        try:
            return bool(torch.take_along_dim(torch.arange(2), torch.tensor([-1]), 0) == 1)
        except RuntimeError:
            return False


_WITH_SHORTCUTS = (
    aten.tensordot.default,
    aten.adaptive_avg_pool2d.default,  # of a size that may be 1: else it is known
    aten.adaptive_avg_pool3d.default,
)

_EXTREMA = (
    aten.max.default,
    aten.min.default,
    aten.max.dim,
    aten.min.dim,
    aten.argmax.default,
    aten.argmin.default,
)


def _of_nonempty(original: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Guards that an extremum is not of an empty tensor, which is an error in eager mode: no check at call time."""
    dim = args[0] if args else kwargs.get("dim")
    for size in x.shape if dim is None else x.shape[dim : dim + 1 or None]:
        if is_general(size) and not is_unbacked(size):
            bool(size > 0)  # which the bounds of the size show, unlike size != 0
    return original(x, *args, **kwargs)


def _norm(original: Any, x: torch.Tensor, order: Any = 2, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Guards on special cases: the norm of one element is its absolute value, not the root of a square, which is
    rounded or overflows; and an order that is an argument is 1 or 2, since any other one is a power of each element, 20
    times as slow."""
    if isinstance(order, (torch.SymInt, torch.SymFloat)):
        order = next((usual_one for usual_one in (2, 1) if order == usual_one), order)
    dims = range(x.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    if is_differentiated(order, x) and order not in (0, math.inf) and not x.is_complex() and not kwargs:
        return norm_of_order(x, order, list(dims), *args)
    count: Any = math.prod(x.size(d) for d in dims) if x.dim() else 1
    if is_general(count) and not is_unbacked(count) and order not in (0, 1, math.inf, -math.inf):
        bool(count == 1)
    return original(x, order, dim, *args, **kwargs)


def _group_norm(
    original: Any,
    x: torch.Tensor,
    groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *args: Any,
) -> Any:
    """Images in channels-last: to detect these, C++ guards on each size being larger than 1. On other devices than the
    CPU the result is contiguous."""
    if x.device.type != "cpu" or not any(map(is_general, x.shape)) or not is_channels_last(x):
        return original(x, groups, weight, bias, eps, *args)
    batch, channels, height, width = x.shape
    x = x.contiguous(memory_format=torch.channels_last)
    return aten.native_group_norm(x, weight, bias, batch, channels, height * width, groups, eps)[0]


def _nll_loss(
    original: Any,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: Any = -100,
) -> Any:
    """Sequences, (batch, classes, length), as images of one row. C++ reshapes them to a size that it has to compute."""
    if x.dim() != 3 or target.dim() != 2 or not any(map(is_general, x.shape)) or has_unbacked_sizes(x):
        return original(x, target, weight, reduction, ignore_index)
    if x.size(0) != target.size(0) or x.size(2) != target.size(1):
        return original(x, target, weight, reduction, ignore_index)  # which is refused
    found = aten.nll_loss2d(x.unsqueeze(2), target.unsqueeze(1), weight, reduction, ignore_index)
    return found if found.dim() == 0 else found.squeeze(1)


def _cross_entropy(original: Any, x: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """For probabilities as targets. C++ guards on emptiness, for a mean of NaN, which a division by 0 gives too."""
    if target.is_floating_point():
        return run_in_full(original, x, target, *args, **kwargs)
    return original(x, target, *args, **kwargs)


def _attention(
    original: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """With the mask expanded to its full size: for a dim of size 1 PyTorch guards on whether the size that it
    broadcasts with is 1. An additive mask is expanded as a view; one of booleans is converted to numbers first (as in
    C++, which would make a copy of the full size).

    Without features the scale is infinite; the tracer would divide by 0.
    """
    features = query.shape[-1]
    if kwargs.get("scale") is None and is_general(features) and not is_unbacked(features) and not features > 0:
        kwargs["scale"] = math.inf
    if isinstance(mask, torch.Tensor) and mask.dim() == query.dim():
        sizes = (*query.shape[:-1], key.shape[-2])
        full = [s if type(m) is int and m == 1 else m for m, s in zip(mask.shape, sizes)]
        if any(is_general(s) and s is not m for m, s in zip(mask.shape, full)):
            mask = _additive(mask, query.dtype).expand(full)
    if isinstance(mask, torch.Tensor) and mask.dim() >= 2 and has_unbacked_sizes(mask):
        sizes = (query.shape[-2], key.shape[-2])
        if not all(known_equal(m, s) for m, s in zip(mask.shape[-2:], sizes)):
            mask = _additive(mask, query.dtype).expand(*mask.shape[:-2], *sizes)  # as many as there are, or one for all
    return original(query, key, value, mask, *args, **kwargs)


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The term that is added to the scores: for a mask of booleans 0 where it is true, else -inf
    (``convert_boolean_attn_mask`` in aten/src/ATen/native/transformers/attention.cpp). Other masks unchanged."""
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, mask.new_zeros((), dtype=dtype), mask.new_full((), -math.inf, dtype=dtype))


def _tensor_split(original: Any, x: torch.Tensor, sections: int, dim: int = 0) -> Any:
    """C++ asks of each part whether it is one of the longer ones."""
    sections = int(sections)  # so many results there are
    is_valid = sections > 0 and -x.dim() <= dim < x.dim()
    if not is_valid or not (has_unbacked_sizes(x) or is_general(x.size(dim))):
        return original(x, sections, dim)
    return _parts(x, [(x.size(dim) + sections - 1 - i) // sections for i in range(sections)], dim)


def _tensor_split_at(original: Any, x: torch.Tensor, indices: Sequence[Any], dim: int = 0) -> Any:
    if not has_unbacked_sizes(x):
        return original(x, indices, dim)
    return [aten.slice.Tensor(x, dim, start, end) for start, end in zip([0, *indices], [*indices, None])]


def _equal_parts(original: Any, x: torch.Tensor, sections: int, dim: int, name: str) -> Any:
    sections = int(sections)  # so many results there are
    if not has_unbacked_sizes(x) or sections < 1:
        return original(x, sections)
    check: Any = torch._check
    check(x.size(dim) % sections == 0, lambda: f"{name} splits a dim in equal parts, of which there are {sections}")
    return _parts(x, [x.size(dim) // sections] * sections, dim)


def _parts(x: torch.Tensor, sizes: Sequence[Any], dim: int) -> list[torch.Tensor]:
    """Each part is a view of its own: those of ``split_with_sizes`` must not be written to."""
    ends = list(itertools.accumulate(sizes))
    return [x.narrow(dim, end - size, size) for end, size in zip(ends, sizes)]


def _hsplit(original: Any, x: torch.Tensor, sections: int) -> Any:
    return _equal_parts(original, x, sections, min(x.dim() - 1, 1), "hsplit") if x.dim() else original(x, sections)


def _vsplit(original: Any, x: torch.Tensor, sections: int) -> Any:
    return _equal_parts(original, x, sections, 0, "vsplit") if x.dim() > 1 else original(x, sections)


def _dsplit(original: Any, x: torch.Tensor, sections: int) -> Any:
    return _equal_parts(original, x, sections, 2, "dsplit") if x.dim() > 2 else original(x, sections)


def _sum_to_size(original: Any, x: torch.Tensor, sizes: Sequence[Any]) -> Any:
    """Sums each dim whose target size is 1, also if its size is 1 already, which changes nothing. Other dims are
    unchanged."""
    lead = x.dim() - len(sizes)
    if lead < 0 or not has_unbacked_sizes(x) or any(isinstance(s, torch.SymInt) and is_unbacked(s) for s in sizes):
        return original(x, sizes)
    to_one = list(range(lead))
    for d, (size, wanted) in enumerate(zip(x.shape[lead:], sizes), lead):
        if wanted == 1:
            to_one.append(d)
        elif not assert_equal(size, wanted):
            return original(x, sizes)
    return x.sum(to_one, keepdim=True).view(sizes) if to_one else x


def _polygamma_(original: Any, x: torch.Tensor, n: int) -> torch.Tensor:
    """AOTAutograd finds no functional form of this one: of the other form the tensor is the second argument."""
    return x.copy_(torch.polygamma(n, x))


def _polar(original: Any, radius: torch.Tensor, angle: torch.Tensor) -> Any:
    return original(radius, angle) if in_transform() else Polar.apply(radius, angle)  # type: ignore[no-untyped-call]


def _index_fill(original: Any, x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> Any:
    """With a gradient by the value that counts each index once; PyTorch's needs the distinct indices."""
    if not (value.requires_grad and torch.is_grad_enabled()) or value.dim():
        return original(x, dim, index, value)
    size = [x.size(dim) if d == dim % x.dim() else 1 for d in range(x.dim())]
    filled = torch.zeros(size, dtype=torch.bool, device=x.device).index_fill(dim, index, True)
    return torch.where(filled, value, x)


def _dropout(original: Any, x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Without dropout the result is the operand itself, not a copy."""
    result: torch.Tensor = original(x, p, train) if train and p != 0 else x
    return result


def _one_hot(original: Any, x: torch.Tensor, classes: int = -1) -> torch.Tensor:
    """For a number of classes that may be data-dependent."""
    if classes != -1:
        result: torch.Tensor = original(x, classes)
        return result
    check: Any = torch._check
    check(x.numel() != 0, lambda: "Can not infer total number of classes from empty tensor.")
    count: Any = (x.max() + 1).item()
    check(count >= 1, lambda: "Class values must be non-negative.")
    aten._assert_async.msg((x >= 0).all(), "Class values must be non-negative.")
    return is_class(x, count)


def _repeat_interleave(
    original: Any, x: torch.Tensor, repeats: torch.Tensor, dim: int | None = None, output_size: Any = None
) -> Any:
    """Numbers of repetitions, an unbacked number of them (``bincount``): one for each index, or for all."""
    if not has_unbacked_sizes(repeats) or repeats.dim() != 1:
        return original(x, repeats, dim, output_size=output_size)
    x = x.flatten() if dim is None else x
    dim = 0 if dim is None else dim
    each = repeats.expand(x.size(dim))
    return x.index_select(dim, aten.repeat_interleave.Tensor(each, output_size=output_size))


def _channel_shuffle(original: Any, x: torch.Tensor, groups: int) -> Any:
    if not has_unbacked_sizes(x) or x.dim() < 3 or groups < 1:
        return original(x, groups)
    batch, channels, *image = x.shape
    check: Any = torch._check
    check(channels % groups == 0, lambda: "the number of channels must be a multiple of groups")
    apart = x.reshape(batch, groups, channels // groups, *image)
    return apart.transpose(1, 2).reshape(x.shape).clone()


def _max_pool1d(
    original: Any,
    x: torch.Tensor,
    window: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """By the operator that returns indices too: the form without indices specialises sizes. Where nothing is
    differentiated, the maximum of slices, which fuses: the operator with indices is far slower than eager mode's."""
    length: Any = x.shape[-1]
    if not any(map(is_general, x.shape)):
        return original(x, window, stride, padding, dilation, ceil_mode)
    plain = not (any(padding) or ceil_mode or window[0] > MOST) and x.is_floating_point() and x.dim() in (2, 3)
    if not plain or has_unbacked_sizes(x) or torch.is_grad_enabled() and x.requires_grad:
        return aten.max_pool1d_with_indices(x, window, stride, padding, dilation, ceil_mode)[0]
    step, reach = (stride or window)[0], dilation[0] * (window[0] - 1)
    if not length > reach:
        raise RefusedCall("max_pool1d() Invalid computed output size: 0")
    last = (length - reach - 1) // step * step + 1
    parts = [x.narrow(-1, i * dilation[0], last)[..., ::step] for i in range(window[0])]
    return functools.reduce(torch.maximum, parts).contiguous()


def _affine_grid(original: Any, theta: torch.Tensor, size: Sequence[Any], align_corners: bool) -> Any:
    """(N, *image, dims): products of each point, from -1 to 1 along each dim and from the last dim on, with ``theta``.
    C++ makes numbers of sizes for the points, and its gradient takes no others; of a batch of one it has no trace."""
    batch, _, *image = size
    columns = []
    for i, length in enumerate(reversed(image)):
        at = 2 * torch.arange(length, dtype=theta.dtype, device=theta.device) - (length - 1)  # 0 in the middle
        points = at / (_torch.sym_max(length - 1, 1) if align_corners else length)
        columns.append(points.reshape(-1, *[1] * i).expand(image))
    points = torch.stack([*columns, torch.ones_like(columns[0])], -1).reshape(-1, len(image) + 1)
    return points.expand(batch, *points.shape).bmm(theta.transpose(1, 2)).view(batch, *image, len(image))


def _addmv(
    original: Any, x: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    """A bias with no dims is added to every row. (For no rows eager mode returns a result without dims, against its
    documentation; here it is empty.)"""
    if x.dim() or not has_unbacked_sizes(matrix):
        return original(x, matrix, vector, beta=beta, alpha=alpha)
    rows = torch.mv(matrix, vector) * alpha
    return rows + x * beta if beta != 0 else rows


def _of_fake_quantized(_original: Any, gradient: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """C++ guards on the number of elements."""
    return gradient * mask


def _ctc_loss(
    original: Any,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """One opaque call: the operator inside whose results have the sizes of alignments has no fake rule. ``log_probs``:
    (length, batch, classes) or (length, classes)."""
    tensors: list[Any] = []
    args = (log_probs, targets, inputs, lengths, int(blank), reduction, zero_infinity)
    text = text_of(aten.ctc_loss.Tensor, args, tensors, "one call: the lengths are in the data")
    sizes = [["tensor", 0, 1]] if reduction == 0 and log_probs.dim() == 3 else []
    text["results"] = [[str(log_probs.dtype).removeprefix("torch."), sizes]]
    found: torch.Tensor = opaque_call(json.dumps(text), tensors, [])[0]
    return found


class _Product(torch.autograd.Function):
    """``bias + a @ b``. PyTorch's gradient depends on the layouts of a and b, and guards on whether a column is a row
    too."""

    @staticmethod
    def forward(ctx: Any, original: Any, a: torch.Tensor, b: torch.Tensor, bias: Any, scales: Any) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        ctx.bias_dims, ctx.scales = 0 if bias is None else bias.dim(), scales
        result: torch.Tensor = original(a, b) if bias is None else original(bias, a, b, **scales)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_a, of_b, of_bias = ctx.needs_input_grad[1:4]
        scaled = gradient * ctx.scales.get("alpha", 1)
        bias = (gradient if ctx.bias_dims == 2 else gradient.sum(0)) * ctx.scales.get("beta", 1) if of_bias else None
        return None, scaled @ b.mH if of_a else None, a.mH @ scaled if of_b else None, bias, None


def _differentiated(*operands: torch.Tensor) -> bool:
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in operands) and not in_transform()
    return wanted and any(has_unbacked_sizes(x) for x in operands)


def _mm(original: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    return _Product.apply(original, a, b, None, {}) if _differentiated(a, b) else original(a, b)  # type: ignore[no-untyped-call]


def _addmm(original: Any, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: Any) -> Any:
    whole = bias.dim() == 2 and known_equal(bias.size(0), a.size(0)) and known_equal(bias.size(1), b.size(1))
    row = bias.dim() == 1 and known_equal(bias.size(0), b.size(1))
    if not (whole or row) or not _differentiated(bias, a, b):
        return original(bias, a, b, **scales)
    return _Product.apply(original, a, b, bias, scales)  # type: ignore[no-untyped-call]
