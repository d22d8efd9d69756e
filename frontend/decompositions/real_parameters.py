"""Replacements for functions of PyTorch whose C++ takes a float: a number made of sizes, or an input, stays symbolic.

PyTorch's argument parser reads a parameter ``float`` as a number before any fake tensor sees the call, and guards on
its value: a graph for each. A parameter ``Scalar`` it passes on. So each function here is written with operators that
take Scalars, as ATen's C++ computes it. A parameter with the annotation ``Real`` is one that the C++ reads as a float;
arguments of other types than these functions expect are left to the C++.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.decomposition_tables import MEAN, SUM, resized
from symshape.frontend.bridge.layouts import is_channels_last
from symshape.frontend.bridge.operators import nn_function
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes
from symshape.frontend.decompositions.distances import norm_of_order, pairs
from symshape.frontend.decompositions.random_numbers import all_or_nothing, drop_as_eager, fill
from symshape.frontend.decompositions.upsampling import factors_of_eager, sizes_by_factors

Tensor = torch.Tensor
Labels = torch.Tensor  # of any element type; a Tensor here has real numbers
Real = Any  # a float, or a symbolic number
_torch: Any = torch  # these have no types


# --- normalisations --------------------------------------------------------------------------------------------------


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.half, torch.bfloat16) else x


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[Any],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Real = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """``torch.layer_norm``"""
    torch.layer_norm(input, normalized_shape, weight, bias)  # raises its errors
    dims, x = list(range(-len(normalized_shape), 0)), _wide(input)
    variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    return _scaled((x - mean) * torch.rsqrt(variance + eps), weight, bias).to(input.dtype).contiguous()


def rms_norm(input: Tensor, normalized_shape: Sequence[Any], weight: Tensor | None = None, eps: Real = None) -> Tensor:
    """``torch.rms_norm``"""
    torch.rms_norm(input, normalized_shape, weight)  # raises its errors
    dims, x = list(range(-len(normalized_shape), 0)), _wide(input)
    normalised = x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    return _scaled(normalised, weight, None).to(input.dtype)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Real = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``torch.group_norm`` of (N, C, ...), in the layout of the operand."""
    torch.group_norm(input, num_groups, weight, bias)  # raises its errors
    x, (batch, channels) = _wide(input), input.shape[:2]
    per_group = channels // num_groups
    grouped = x.reshape(batch, num_groups, per_group * math.prod(input.shape[2:]))  # no -1: N may be 0
    of_group = torch.var_mean(grouped, 2, correction=0)
    variance, mean = (one.repeat_interleave(per_group, 1) for one in of_group)
    return _normalised(x, mean, variance + eps, weight, bias, input.dtype)


def _normalised(
    x: Tensor, mean: Any, variance: Any, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """``x`` (N, C, ...), the others (C) or (N, C). In channels-last if ``x`` is, else contiguous."""

    def along(one: Tensor) -> Tensor:
        return one.reshape(*one.shape, *[1] * (x.dim() - 2))

    found = (x - along(mean)) * along(torch.rsqrt(variance))
    found = _scaled(found, *(None if one is None else along(one) for one in (weight, bias))).to(dtype)
    return found if is_channels_last(x) else found.clone(memory_format=torch.contiguous_format)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: Real,
    eps: Real,
    cudnn_enabled: bool,
) -> Tensor:
    """``torch.batch_norm`` of (N, C, ...)"""
    if not training and (running_mean is None or running_var is None):
        return torch.batch_norm(  # which is refused
            input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
        )
    x, dims = _wide(input), [0, *range(2, input.dim())]
    mean: Any = running_mean
    variance: Any = running_var
    if training:
        variance, mean = torch.var_mean(x, dims, correction=0)
        count: Any = math.prod(input.size(d) for d in dims)
        with torch.no_grad():
            for running, now in ((running_mean, mean), (running_var, variance * (count / (count - 1)))):
                if running is not None:
                    running.copy_(running * (1 - momentum) + now * momentum)
    return _normalised(x, mean, variance + eps, weight, bias, input.dtype)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: None,
    running_var: None,
    use_input_stats: bool,
    momentum: float,
    eps: Real,
    cudnn_enabled: bool,
) -> Tensor:
    """``torch.instance_norm`` of (N, C, ...) without running statistics."""
    variance, mean = torch.var_mean(_wide(input), list(range(2, input.dim())), correction=0)
    return _normalised(_wide(input), mean, variance + eps, weight, bias, input.dtype)


# --- random numbers --------------------------------------------------------------------------------------------------


def dropout(input: Tensor, p: Real, train: bool) -> Tensor:
    """``torch.dropout``"""
    return drop_as_eager(_drop, input, p, train)


def _drop(x: Tensor, p: Real, train: bool) -> Tensor:
    """On other devices than CPUs."""
    if not train or p == 0:
        return x
    return x * (torch.rand_like(x) >= p) * (1.0 / (1 - p) if p != 1 else 0.0)


def dropout_(input: Tensor, p: Real, train: bool) -> Tensor:
    """``torch.dropout_``"""
    return input.copy_(dropout(input, p, train))


def feature_dropout(input: Tensor, p: Real, train: bool) -> Tensor:
    """``torch.feature_dropout`` of (N, C, ...): whole channels."""
    if (found := all_or_nothing(input, p, train)) is not None:
        return found
    if not has_unbacked_sizes(input) and input.numel() == 0:
        return input  # eager mode draws nothing
    noise = input.new_empty([*input.shape[:2], *[1] * (input.dim() - 2)])
    return input * fill("bernoulli_.float", noise, [1 - p]).div(1 - p)


_SATURATION: Final = 1.7580993408473766  # of SELU: what dropped elements tend to


def alpha_dropout(input: Tensor, p: Real, train: bool) -> Tensor:
    """``torch.alpha_dropout`` (aten/src/ATen/native/Dropout.cpp)"""
    if (found := all_or_nothing(input, p, train)) is not None:
        return found
    noise = fill("bernoulli_.float", torch.empty_like(input), [1 - p])
    a = 1.0 / _torch.sym_sqrt((_SATURATION * _SATURATION * p + 1) * (1 - p))
    shift = (noise - 1) * (_SATURATION * a) + _SATURATION * a * p
    return input * (noise * a) + shift


def bernoulli(input: Tensor, p: Real, *, generator: None = None) -> Tensor:
    """``torch.bernoulli`` of a number."""
    return fill("bernoulli_.float", torch.empty_like(input), [p])


def bernoulli_(input: Tensor, p: Real = 0.5, *, generator: None = None) -> Tensor:
    """``Tensor.bernoulli_`` of a number"""
    return input.copy_(fill("bernoulli_.float", input, [p]))


def normal_(input: Tensor, mean: Real = 0.0, std: Real = 1.0, *, generator: None = None) -> Tensor:
    """``Tensor.normal_``"""
    check: Any = torch._check
    check(std >= 0, lambda: f"normal expects std >= 0.0, but found std {std}")
    return input.copy_(fill("normal_.default", input, [mean, std]))


def normal(
    mean: Real | Tensor,
    std: Real | Tensor,
    size: Any = None,
    *,
    generator: None = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """``torch.normal`` of two numbers, or of a number and a tensor."""
    check: Any = torch._check
    check(isinstance(std, Tensor) or std >= 0, lambda: f"normal expects std >= 0.0, but found std {std}")
    if size is not None:
        return fill("normal_.default", torch.empty(size, dtype=dtype, device=device), [mean, std])
    given = mean if isinstance(mean, Tensor) else std
    made = torch.empty_like(given, memory_format=torch.contiguous_format)
    if isinstance(mean, Tensor):
        return _with_zero_gradient(fill("normal_.default", made, [0.0, std]) + mean.detach(), mean)
    torch._assert_async((std >= 0).all(), "normal expects all elements of std >= 0.0")
    return _with_zero_gradient(fill("normal_.default", made, [0.0, 1.0]) * std.detach() + mean, std)


def _with_zero_gradient(drawn: Tensor, x: Tensor) -> Tensor:
    """What is drawn with the parameters ``x``, as eager mode differentiates it: the gradient of ``x`` is zero."""
    return torch.where(torch.zeros((), dtype=torch.bool, device=x.device), x, drawn) if x.requires_grad else drawn


def exponential_(input: Tensor, lambd: Real = 1.0, *, generator: None = None) -> Tensor:
    """``Tensor.exponential_``"""
    check: Any = torch._check
    check(lambd > 0, lambda: f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return input.copy_(fill("exponential_.default", input, [lambd]))


def geometric_(input: Tensor, p: Real, *, generator: None = None) -> Tensor:
    """``Tensor.geometric_``"""
    check: Any = torch._check
    check(0 < p < 1, lambda: f"geometric_ expects p to be in (0, 1), but got p={p}")
    return input.copy_(fill("geometric_.default", input, [p]))


def cauchy_(input: Tensor, median: Real = 0.0, sigma: Real = 1.0, *, generator: None = None) -> Tensor:
    """``Tensor.cauchy_``"""
    check: Any = torch._check
    check(sigma > 0, lambda: f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return input.copy_(fill("cauchy_.default", input, [median, sigma]))


def log_normal_(input: Tensor, mean: Real = 1.0, std: Real = 2.0, *, generator: None = None) -> Tensor:
    """``Tensor.log_normal_``"""
    check: Any = torch._check
    check(std > 0, lambda: f"log_normal_ expects std > 0.0, but found std={std}")
    return input.copy_(fill("log_normal_.default", input, [mean, std]))


def uniform_(input: Tensor, *args: Real, **kwargs: Real) -> Tensor:
    """``Tensor.uniform_``, which calls its first parameter ``from``."""
    named = [kwargs.get(name, default) for name, default in (("from", 0.0), ("to", 1.0))]
    first, last = list(args) + named[len(args) :]
    check: Any = torch._check
    check(first <= last, lambda: f"uniform_ expects to return a [from, to) range, but found from={first} > to={last}")
    return input.copy_(fill("uniform_.default", input, [first, last]))


# --- losses and distances --------------------------------------------------------------------------------------------


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return loss.mean() if reduction == MEAN else loss.sum() if reduction == SUM else loss


def huber_loss(input: Tensor, target: Tensor, reduction: int = MEAN, delta: Real = 1.0) -> Tensor:
    """``torch._C._nn.huber_loss``"""
    check: Any = torch._check
    check(delta > 0, lambda: "huber_loss does not support non-positive values for delta.")
    z = (input - target).abs()
    return _reduced(torch.where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta)), reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: int = MEAN, beta: Real = 1.0) -> Tensor:
    """``torch._C._nn.smooth_l1_loss``"""
    check: Any = torch._check
    check(beta >= 0, lambda: "smooth_l1_loss does not support negative values for beta.")
    z = (input - target).abs()
    if beta == 0:
        return _reduced(z, reduction)
    return _reduced(torch.where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta), reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Labels, margin: Real = 0.0, reduction: int = MEAN
) -> Tensor:
    """``torch.margin_ranking_loss``"""
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def hinge_embedding_loss(input: Tensor, target: Labels, margin: Real = 1.0, reduction: int = MEAN) -> Tensor:
    """``torch.hinge_embedding_loss``"""
    apart = torch.where(target != 1, (margin - input).clamp_min(0), 0)
    return _reduced(apart + torch.where(target != -1, input, 0), reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Labels, margin: Real = 0.0, reduction: int = MEAN
) -> Tensor:
    """``torch.cosine_embedding_loss`` of rows, or of two vectors."""
    squares = ((one * one).sum(-1) + 1e-12 for one in (input1, input2))
    cosine = (input1 * input2).sum(-1) / (next(squares) * next(squares)).sqrt()
    alike = torch.where(target == 1, 1 - cosine, 0)
    return _reduced(alike + torch.where(target == -1, (cosine - margin).clamp_min(0), 0), reduction)


def pairwise_distance(x1: Tensor, x2: Tensor, p: Real = 2, eps: Real = 1e-6, keepdim: bool = False) -> Tensor:
    """``torch.pairwise_distance``"""
    found: Tensor = torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)
    return found


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: Real = 1.0,
    p: Real = 2,
    eps: Real = 1e-6,
    swap: bool = False,
    reduction: int = MEAN,
) -> Tensor:
    """``torch.triplet_margin_loss``"""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    far = torch.minimum(far, pairwise_distance(positive, negative, p, eps)) if swap else far
    return _reduced((margin + near - far).clamp_min(0), reduction)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: Real, reduction: int) -> Tensor:
    """``torch.poisson_nll_loss``"""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduced(loss, reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: Real = 1e-8) -> Tensor:
    """``torch.cosine_similarity``: norms below ``eps`` are ``eps``, which the gradient does not see."""
    x1, x2 = torch.broadcast_tensors(x1, x2)
    units = []
    for x in (x1, x2):
        length = torch.linalg.vector_norm(x, 2, dim, True)
        units.append(x / (length + (length.clamp_min(eps) - length).detach()))
    return (units[0] * units[1]).sum(dim)


def cdist(x1: Tensor, x2: Tensor, p: Real = 2.0, compute_mode: Any = None) -> Tensor:
    """``torch.cdist`` of rows (..., P, M) and (..., R, M): (..., P, R)."""
    check: Any = torch._check
    check(p >= 0, lambda: "cdist only supports non-negative p values")
    if (original := _usual_order(p)) is not None:
        return torch.cdist(x1, x2, original)
    return norm_of_order(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, [-1])


def pdist(input: Tensor, p: Real = 2) -> Tensor:
    """``torch.pdist`` of rows (N, M): (N * (N - 1) / 2,)."""
    check: Any = torch._check
    check(p >= 0, lambda: "pdist only supports non-negative p values")
    if (original := _usual_order(p)) is not None:
        return torch.pdist(input, original)
    first, second = pairs(input)
    return norm_of_order(input[first] - input[second], p, [-1])


def _usual_order(p: Any) -> float | None:
    """The order of a norm, if it is one that has an operator of its own."""
    return next((one for one in (0.0, 1.0, 2.0, math.inf) if p == one), None)


def cross_entropy_loss(
    input: Tensor,
    target: Labels,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: Any = -100,
    label_smoothing: Real = 0.0,
) -> Tensor:
    """``torch._C._nn.cross_entropy_loss`` (aten/src/ATen/native/LossNLL.cpp)"""
    dim = 1 if input.dim() > 1 else 0
    classes: Any = input.size(dim)
    one = nn_function("cross_entropy_loss")
    if target.is_floating_point():
        return one(input, target * (1 - label_smoothing) + label_smoothing / classes, weight, reduction)
    original = one(input, target, weight, reduction, ignore_index)
    logs, ignored = input.log_softmax(dim), target == ignore_index
    shape = [-1 if d == dim else 1 for d in range(input.dim())]
    smooth = -(logs if weight is None else logs * weight.reshape(shape)).sum(dim).masked_fill(ignored, 0)
    if reduction == MEAN:
        counted = ~ignored if weight is None else weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0)
        smooth = smooth.sum() / counted.sum()
    elif reduction == SUM:
        smooth = smooth.sum()
    return original * (1 - label_smoothing) + smooth * (label_smoothing / classes)


# --- others ----------------------------------------------------------------------------------------------------------


def quantile(
    input: Tensor, q: Real, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """``torch.quantile`` of one number."""
    return _quantile(input, q, dim, keepdim, interpolation, ignore_nan=False)


def nanquantile(
    input: Tensor, q: Real, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """``torch.nanquantile`` of one number."""
    return _quantile(input, q, dim, keepdim, interpolation, ignore_nan=True)


def _quantile(x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    """aten/src/ATen/native/Sorting.cpp, ``quantile_compute``"""
    check: Any = torch._check
    check(0 <= q <= 1, lambda: f"quantile() q must be in the range [0, 1] but got {q}")
    check(x.numel() > 0, lambda: "quantile() input tensor must be non-empty")
    whole = [1] * x.dim()
    rows = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    ordered = rows.sort(-1).values
    is_nan = rows.isnan()
    if ignore_nan:
        last = (~is_nan).sum(-1, keepdim=True) - 1
        rank = (last * q).to(x.dtype).masked_fill(last < 0, 0)
    else:
        rank = torch.full((), (x.size(dim) if dim is not None else x.numel()) - 1, dtype=x.dtype) * q
        last = rows.new_full((), (x.size(dim) if dim is not None else x.numel()) - 1, dtype=torch.int64)
        rank = torch.where(is_nan.any(-1, keepdim=True), last.to(x.dtype), rank.to(x.device))
    rank = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}.get(interpolation, _itself)(rank)
    below = rank.long()
    found = ordered.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weight = torch.full_like(rank, 0.5) if interpolation == "midpoint" else rank - below
        between = torch.lerp(found, ordered.gather(-1, rank.ceil().long()), weight)
        found = torch.where(weight == 0, found, between)  # also where it is infinite
    if dim is not None:
        return found.movedim(-1, dim) if keepdim else found.squeeze(-1)
    return found.reshape(whole) if keepdim else found.squeeze(-1)


def _itself(x: Tensor) -> Tensor:
    return x


def var(input: Tensor, dim: Any = None, *, correction: Real = 1, keepdim: bool = False) -> Tensor:
    """``torch.var``"""
    x = _wide(input)
    found = torch.var(x, dim, correction=0, keepdim=keepdim)
    return (found * _correction(x, dim, correction)).to(input.dtype)


def std(input: Tensor, dim: Any = None, *, correction: Real = 1, keepdim: bool = False) -> Tensor:
    """``torch.std``"""
    return var(_wide(input), dim, correction=correction, keepdim=keepdim).sqrt().to(input.dtype)


def var_mean(input: Tensor, dim: Any = None, *, correction: Real = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``torch.var_mean``"""
    x = _wide(input)
    found, mean = torch.var_mean(x, dim, correction=0, keepdim=keepdim)
    return (found * _correction(x, dim, correction)).to(input.dtype), mean.to(input.dtype)


def std_mean(input: Tensor, dim: Any = None, *, correction: Real = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``torch.std_mean``"""
    found, mean = var_mean(_wide(input), dim, correction=correction, keepdim=keepdim)
    return found.sqrt().to(input.dtype), mean.to(input.dtype)


def _correction(x: Tensor, dim: Any, correction: Any) -> Tensor:
    """What a mean square of distances is multiplied with: n / max(n - correction, 0), a tensor without dims."""
    dims = range(x.dim()) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else dim
    count = torch.full((), math.prod(x.size(d) for d in dims), dtype=torch.float64, device=x.device)
    return count / (count - correction).clamp_min(0)


def nan_to_num(
    input: Tensor, nan: Real | None = None, posinf: Real | None = None, neginf: Real | None = None
) -> Tensor:
    """``torch.nan_to_num`` of floating-point numbers."""
    ends = torch.finfo(input.dtype)
    found = torch.where(input.isnan(), 0.0 if nan is None else nan, input)
    found = torch.where(input == math.inf, ends.max if posinf is None else posinf, found)
    return torch.where(input == -math.inf, ends.min if neginf is None else neginf, found).to(input.dtype)


def logit(input: Tensor, eps: Real | None = None) -> Tensor:
    """``torch.logit``. The lower bound counts where it is the larger one, unlike that of ``clamp``."""
    x = input
    if eps is not None:
        x = torch.where(input < eps, eps, torch.where(input > 1 - eps, 1 - eps, input))
    return (x / (1 - x)).log()


def isclose(input: Tensor, other: Tensor, rtol: Real = 1e-5, atol: Real = 1e-8, equal_nan: bool = False) -> Tensor:
    """``torch.isclose`` of floating-point numbers."""
    check: Any = torch._check
    check(rtol >= 0, lambda: f"rtol must be greater than or equal to zero, but got {rtol}")
    check(atol >= 0, lambda: f"atol must be greater than or equal to zero, but got {atol}")
    equal = input == other
    equal = equal | (input.isnan() & other.isnan()) if equal_nan else equal
    distance = (input - other).abs()
    return equal | (distance.isfinite() & (distance <= (other * rtol).abs() + atol))


def float_power(input: Tensor, exponent: Real) -> Tensor:
    """``torch.float_power`` of real numbers."""
    return input.double() ** exponent


def trapezoid(y: Tensor, *, dx: Real = 1.0, dim: int = -1) -> Tensor:
    """``torch.trapezoid`` of equal distances (aten/src/ATen/native/Integration.cpp)"""
    if y.size(dim) == 0:
        return y.new_zeros([size for d, size in enumerate(y.shape) if d != dim % y.dim()])
    return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx


def cumulative_trapezoid(y: Tensor, *, dx: Real = 1.0, dim: int = -1) -> Tensor:
    """``torch.cumulative_trapezoid`` of equal distances."""
    before = [slice(None)] * (dim % y.dim())
    return ((y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) * (dx / 2)).cumsum(dim)


def pinv(input: Tensor, *, atol: Real | None = None, rtol: Real | None = None, hermitian: bool = False) -> Tensor:
    """``torch.linalg.pinv`` with tolerances as tensors."""
    found: Tensor = torch.linalg.pinv(input, **_tolerances(input, atol, rtol), hermitian=hermitian)
    return found


def pinverse(input: Tensor, rcond: Real = 1e-15) -> Tensor:
    """``torch.pinverse``"""
    return pinv(input, rtol=rcond)


def matrix_rank(
    input: Tensor, *, atol: Real | None = None, rtol: Real | None = None, hermitian: bool = False
) -> Tensor:
    """``torch.linalg.matrix_rank`` with tolerances as tensors."""
    found: Tensor = torch.linalg.matrix_rank(input, **_tolerances(input, atol, rtol), hermitian=hermitian)
    return found


def _tolerances(x: Tensor, atol: Any, rtol: Any) -> dict[str, Tensor]:
    given = {name: value for name, value in (("atol", atol), ("rtol", rtol)) if value is not None}
    return {name: torch.full((), value, dtype=torch.float64, device=x.device) for name, value in given.items()}


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Real = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``torch.nn.functional.scaled_dot_product_attention``: queries are scaled before."""
    found: Tensor = torch.nn.functional.scaled_dot_product_attention(
        query * scale, key, value, attn_mask, dropout_p, is_causal, scale=1.0, enable_gqa=enable_gqa
    )
    return found


def _interpolated(mode: str) -> Callable[..., Tensor]:
    """A function ``torch._C._nn.upsample_*`` of (N, C, ...) by factors."""

    def interpolated(input: Tensor, output_size: None, *more: Real) -> Tensor:
        *corners, factors = more
        sizes = sizes_by_factors(input, factors)
        read = factors_of_eager(mode, input, factors)
        read = [_torch.sym_float(one) if isinstance(one, torch.SymInt) else one for one in read]
        return resized(mode, input, sizes, read, *corners)

    interpolated.__name__ = f"interpolated_{mode.replace('-', '_')}"
    return interpolated


# --- which calls -----------------------------------------------------------------------------------------------------

_OF_FUNCTIONS = (
    layer_norm,
    rms_norm,
    group_norm,
    batch_norm,
    instance_norm,
    dropout,
    dropout_,
    feature_dropout,
    alpha_dropout,
    bernoulli,
    margin_ranking_loss,
    hinge_embedding_loss,
    cosine_embedding_loss,
    pairwise_distance,
    triplet_margin_loss,
    poisson_nll_loss,
    cosine_similarity,
    cdist,
    pdist,
    quantile,
    nanquantile,
    var,
    std,
    var_mean,
    std_mean,
    nan_to_num,
    logit,
    isclose,
    pinverse,
    normal,
    float_power,
    trapezoid,
    cumulative_trapezoid,
)
_OF_METHODS = (
    bernoulli,
    bernoulli_,
    normal_,
    exponential_,
    geometric_,
    cauchy_,
    log_normal_,
    uniform_,
    quantile,
    nanquantile,
    var,
    std,
    nan_to_num,
    logit,
    isclose,
    pinverse,
    float_power,
)
_OF_NN = (huber_loss, smooth_l1_loss, cross_entropy_loss, scaled_dot_product_attention)
_UPSAMPLING = {
    "nearest": ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    "nearest-exact": ("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    "linear": ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
    "bicubic": ("upsample_bicubic2d",),
}


def rules() -> dict[Any, Callable[..., Any]]:
    """C++ function of PyTorch -> its replacement for symbolic numbers."""
    found: dict[Any, Callable[..., Any]] = {getattr(torch, rule.__name__): rule for rule in _OF_FUNCTIONS}
    found |= {getattr(torch.Tensor, rule.__name__): rule for rule in _OF_METHODS}
    found |= {nn_function(rule.__name__): rule for rule in _OF_NN}
    for mode, names in _UPSAMPLING.items():
        found |= dict.fromkeys(map(nn_function, names), _interpolated(mode))
    return found | {torch.linalg.pinv: pinv, torch.linalg.matrix_rank: matrix_rank}


class _Namespace:
    """A module, in which functions of C++ are replaced where a rule takes the arguments."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if isinstance(found, ModuleType):
            return _Namespace(found)
        rule = _rules().get(found) if callable(found) and found.__hash__ else None
        return found if rule is None else functools.partial(_called, found, rule)


def _called(function: Callable[..., Any], rule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return (rule if takes(rule, args, kwargs) else function)(*args, **kwargs)


_rules = functools.cache(rules)


def python_functions() -> dict[Any, Callable[..., Any]]:
    """Function of ``torch.nn.functional`` -> a function with its code, in which calls of C++ are replaced.

    A function mode would not see these calls: it sees the Python function, which it runs without itself.
    """
    functional = torch.nn.functional
    others: dict[str, Any] = {name: _nothing for name in vars(functional) if name.startswith("has_torch_function")}
    others |= {name: _Namespace(getattr(functional, name)) for name in ("torch", "_VF")}
    names = {**vars(functional), **others}
    replaced = {function.__name__ for function in _rules()}
    functions = [one for one in vars(functional).values() if isinstance(one, FunctionType)]
    own = [one for one in functions if one.__module__ == functional.__name__]
    return {one: _with_names(one, names) for one in own if not replaced.isdisjoint(one.__code__.co_names)}


def _nothing(*_: Any) -> bool:
    return False


def _with_names(function: FunctionType, names: dict[str, Any]) -> Callable[..., Any]:
    made = FunctionType(function.__code__, names, None, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = __name__  # a graph calls a function of PyTorch by its name
    made.__name__ = made.__qualname__ = f"{function.__name__}_of_symbols"
    return made


def has_symbolic_float(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether one of these is a symbolic float, or a list with one."""
    return any(isinstance(one, torch.SymFloat) for one in pytree.tree_leaves((args, kwargs)))


def has_symbolic_factor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of ``torch.nn.functional.interpolate`` has a symbolic number as a factor, an integer too."""
    return has_symbolic_float(args, kwargs) or is_symbolic([*args[2:3], kwargs.get("scale_factor")])


@functools.cache
def _parameters(rule: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, str]]:
    """The signature of a rule, and the annotations of its parameters."""
    signature = inspect.signature(rule)
    return signature, {name: str(one.annotation) for name, one in signature.parameters.items()}


def takes(rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a rule is for these arguments: one of its real numbers is symbolic, and all have the types it says."""
    signature, kinds = _parameters(rule)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return False
    reals = [value for name, value in given.items() if kinds[name].startswith("Real")]
    return is_symbolic(reals) and all(_has_type(kinds[name], value) for name, value in given.items())


def is_symbolic(value: Any) -> bool:
    """Whether it is a symbolic number, or has one in its lists."""
    if isinstance(value, (list, tuple)):
        return any(map(is_symbolic, value))
    if isinstance(value, dict):
        return any(map(is_symbolic, value.values()))
    return isinstance(value, (torch.SymFloat, torch.SymInt))


def _has_type(kind: str, value: Any) -> bool:
    """Whether a value is what an annotation says, as far as tensors, booleans and None are concerned."""
    if kind in ("None", "bool"):
        return value is None if kind == "None" else isinstance(value, bool)
    if kind == "Labels":
        return isinstance(value, torch.Tensor)
    if kind.endswith("| Tensor"):
        return True
    if kind.startswith("Tensor"):
        is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
        return is_real or (value is None and kind.endswith("None"))
    return not isinstance(value, torch.Tensor)
