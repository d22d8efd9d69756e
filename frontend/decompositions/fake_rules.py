"""Fake rules for operators for which PyTorch has none, or a wrong one: sizes, strides and types of eager mode.

An operator without one cannot be traced (the gradient of 3-d fractional pooling), or only as an opaque call, with
results copied into contiguous tensors (the factors of a matrix are column-major).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.layouts import is_channels_last
from symshape.frontend.decompositions.normalisations import group_norm_sizes
from symshape.frontend.decompositions.upsampling import GRADIENTS, contiguous_sizes, gradient_sizes

aten: Any = torch.ops.aten
_torch: Any = torch  # these have no types
_sym_min, _sym_max, _broadcast = _torch.sym_min, _torch.sym_max, _torch.broadcast_shapes
Size = Any  # int | torch.SymInt


def _column_major(x: torch.Tensor, sizes: Sequence[Size]) -> torch.Tensor:
    return x.new_empty([*sizes[:-2], sizes[-1], sizes[-2]]).mT


def _like_operand(gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _pooled_operand(gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> torch.Tensor:
    """PyTorch's rule guards on each size being larger than 1."""
    return _in_format_of(x, x.shape)


def _largest_of_windows(x: torch.Tensor, output_size: Sequence[Size]) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's rule guards on each size being larger than 1. Empty windows are an error."""
    _torch._check(x.dim() in (3, 4), lambda: f"adaptive_max_pool2d(): Expected 3D or 4D tensor, but got: {x.shape}")
    for size in x.shape[1:]:
        _torch._check(size > 0, lambda: f"adaptive_max_pool2d(): Expected input to have non-zero size, got {x.shape}")
    sizes = [*x.shape[:-2], *output_size]
    return _in_format_of(x, sizes), _in_format_of(x, sizes, torch.int64)


def _in_format_of(x: torch.Tensor, sizes: Sequence[Size], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Channels-last, if the operand is."""
    if not is_channels_last(x):
        return x.new_empty(sizes, dtype=dtype)
    batch, channels, height, width = sizes
    return x.new_empty([batch, height, width, channels], dtype=dtype).permute(0, 3, 1, 2)


def _qr(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    *batch, m, n = x.shape
    return _column_major(x, x.shape), x.new_empty([*batch, _sym_min(m, n)])


def _least_squares(
    a: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[torch.Tensor, ...]:
    """The solution is computed in place of b, which has m rows, of which n are returned. Some of the other results are
    empty, depending on the driver, on which of m and n is larger, and, where the singular values are computed, on the
    rank."""
    driver = driver or ("gelsy" if a.device.type == "cpu" else "gels")
    *batch, m, n = a.shape
    vector = b.dim() == a.dim() - 1
    batch = list(_broadcast(batch, b.shape[: b.dim() - (1 if vector else 2)]))
    columns = 1 if vector else b.shape[-1]
    solution = _column_major(a, [*batch, _sym_max(m, n), columns]).narrow(-2, 0, n)
    real = a.real.dtype
    residuals = a.new_empty([0], dtype=real)
    by_rank = driver in ("gelsd", "gelss")
    if driver != "gelsy" and m > n:
        count = torch.library.get_ctx().new_dynamic_size() if by_rank and not batch else columns
        residuals = a.new_empty([*batch, count], dtype=real)
    rank = a.new_empty([0] if driver == "gels" else batch, dtype=torch.int64)
    values = a.new_empty([*batch, _sym_min(m, n)] if by_rank else [0], dtype=real)
    return solution.squeeze(-1) if vector else solution, residuals, rank, values


def _triangular_solution(
    a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> torch.Tensor:
    """Column-major, but for a conjugate of a column-major matrix. PyTorch's rule guards on ``a`` being contiguous, as
    every matrix of one element is, and on emptiness."""
    name = "linalg.solve_triangular"
    for x in (a, b):
        _torch._check(x.dim() >= 2, lambda: f"{name}: The input tensor must have at least 2 dimensions.")
    m, n = a.shape[-2:]
    _torch._check(m == n, lambda: f"{name}: A must be batches of square matrices, but they are {m} by {n} matrices")
    _torch._check(
        n == b.shape[-2 if left else -1],
        lambda: (
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({m}x{n} and {b.shape[-2]}x{b.shape[-1]})"
        ),
    )
    sizes = [*_broadcast(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]]
    return b.new_empty(sizes) if a.is_conj() and a.mT.is_contiguous() else _column_major(b, sizes)


def _solution_by_factors(
    factors: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *, left: bool = True, adjoint: bool = False
) -> torch.Tensor:
    """``linalg.lu_solve``: column-major, or the conjugate of a contiguous matrix for a solution from the right.
    PyTorch's rule guards on emptiness: the conjugate of nothing is not marked as one."""
    name = "linalg.lu_solve"
    m, n = factors.shape[-2:]
    _torch._check(m == n, lambda: f"{name}: A must be batches of square matrices, but they are {m} by {n} matrices")
    _torch._check(n == pivots.shape[-1], lambda: f"{name}: there must be a pivot for each row")
    _torch._check(n == b.shape[-2 if left else -1], lambda: f"{name}: Incompatible shapes of A and B")
    sizes = [*_broadcast(factors.shape[:-2], b.shape[:-2]), *b.shape[-2:]]
    if left:
        return _column_major(b, sizes)
    return b.new_empty(sizes).conj()  # what is not complex is its own conjugate


def _running_extremum(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices of ``cummax`` and ``cummin``. PyTorch's rule guards on emptiness."""
    if not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.dim()}, {x.dim() - 1}], but got {dim})"
        )
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int64)


def _histogram(x: torch.Tensor, bins: int = 100, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty([bins]), x.new_empty([bins + 1])


def _histogram_of_bins(x: torch.Tensor, bins: torch.Tensor, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty([bins.size(0) - 1]), x.new_empty([bins.size(0)])


def _edges(x: torch.Tensor, bins: Sequence[int], **_: Any) -> list[torch.Tensor]:
    return [x.new_empty([count + 1]) for count in bins]


def _counts(x: torch.Tensor, bins: Sequence[int], **_: Any) -> torch.Tensor:
    return x.new_empty(list(bins))


def _counts_of_bins(x: torch.Tensor, bins: Sequence[torch.Tensor], **_: Any) -> torch.Tensor:
    return x.new_empty([edges.size(0) - 1 for edges in bins])


def _drawn(*args: Any, generator: Any = None, dtype: torch.dtype | None = None, **how: Any) -> torch.Tensor:
    """The result has the given size, the last positional argument. The tracer runs the operator itself on the device
    "meta", which specialises symbolic sizes if a generator is given."""
    return torch.empty(args[-1], dtype=dtype, **how)


def _drawn_integers(*args: Any, dtype: torch.dtype | None = torch.int64, **how: Any) -> torch.Tensor:
    return _drawn(*args, dtype=dtype or torch.int64, **how)


def _sampled(x: torch.Tensor, grid: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty([*x.shape[:2], *grid.shape[1:-1]])


def _sampled_backward(
    gradient: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool, mask: Any
) -> tuple[torch.Tensor | None, torch.Tensor]:
    return x.new_empty(x.shape) if mask[0] else None, grid.new_empty(grid.shape)


def _packed(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The number of rows is the sum of lengths, and there is a number for each step. PyTorch's rule assumes that the
    rows are known."""
    context = torch.library.get_ctx()
    rows, steps = context.new_dynamic_size(), context.new_dynamic_size()
    return x.new_empty([rows, *x.shape[2:]]), torch.empty([steps], dtype=torch.int64)


def _fake_quantized(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and a mask of the elements within the range, for backward."""
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _fake_quantized_alone(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _of_learnt_number(_: torch.Tensor, x: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(x), x.new_empty([1]), x.new_empty([1])


def _of_learnt_channels(_: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, *others: Any) -> Any:
    return torch.empty_like(x), x.new_empty(scale.shape), x.new_empty(scale.shape)


def _contiguous_like(x: torch.Tensor, *_: Any, **how: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _squeezed_copy(x: torch.Tensor, *dim: Any) -> torch.Tensor:
    """With guards on sizes of 1, as for the view. PyTorch's rule, in C++, drops no dim of a symbolic size."""
    return x.squeeze(*dim).clone(memory_format=torch.contiguous_format)


FAKE_RULES: Mapping[Any, Callable[..., Any]] = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantized,
    aten.fake_quantize_per_channel_affine_cachemask.default: _fake_quantized,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _fake_quantized,
    aten._fake_quantize_learnable_per_tensor_affine.default: _fake_quantized_alone,
    aten._fake_quantize_learnable_per_channel_affine.default: _fake_quantized_alone,
    aten._fake_quantize_learnable_per_tensor_affine_backward.default: _of_learnt_number,
    aten._fake_quantize_learnable_per_channel_affine_backward.default: _of_learnt_channels,
    aten.fractional_max_pool2d_backward.default: _like_operand,
    aten.fractional_max_pool3d_backward.default: _like_operand,
    aten.grid_sampler_2d.default: _sampled,
    aten.grid_sampler_3d.default: _sampled,
    aten.grid_sampler_2d_backward.default: _sampled_backward,
    aten.grid_sampler_3d_backward.default: _sampled_backward,
    aten._adaptive_avg_pool2d_backward.default: _pooled_operand,
    aten.adaptive_max_pool2d.default: _largest_of_windows,
    aten.adaptive_max_pool2d_backward.default: _pooled_operand,
    aten.geqrf.default: _qr,
    aten.cummax.default: _running_extremum,
    aten.cummin.default: _running_extremum,
    aten.linalg_lstsq.default: _least_squares,
    aten.linalg_solve_triangular.default: _triangular_solution,
    aten.linalg_lu_solve.default: _solution_by_factors,
    aten.histogram.bin_ct: _histogram,
    aten.histogram.bins_tensor: _histogram_of_bins,
    aten._histogramdd_bin_edges.default: _edges,
    aten._histogramdd_from_bin_cts.default: _counts,
    aten._histogramdd_from_bin_tensors.default: _counts_of_bins,
    aten.rand.generator: _drawn,
    aten.randn.generator: _drawn,
    aten.randint.generator: _drawn_integers,
    aten.randint.low_generator: _drawn_integers,
    aten.normal.float_float: _drawn,
    aten._standard_gamma.default: _contiguous_like,
    aten._standard_gamma_grad.default: _contiguous_like,
    aten._sample_dirichlet.default: _contiguous_like,
    aten._dirichlet_grad.default: _contiguous_like,
    aten.binomial.default: _contiguous_like,
    aten.poisson.default: _contiguous_like,
    aten._pack_padded_sequence.default: _packed,
    aten.native_group_norm.default: group_norm_sizes,
    **dict.fromkeys((aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims), _squeezed_copy),
    **dict.fromkeys(GRADIENTS.values(), gradient_sizes),
    aten.upsample_bicubic2d_backward.default: contiguous_sizes,
}
