"""Decompositions of operators whose tracing rules need the number of elements, which may be unbacked.

The gradients of ``var``, ``prod``, ``cumsum``, ``cumprod`` and ``repeat`` branch on it, that of ``masked_select``
specialises sizes of its operand, and ``logsumexp`` and batch norms test for emptiness. Here are forms without such
conditions; for constant sizes the usual ones are used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.operators import AutogradKernel, in_transform
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes, is_unbacked
from symshape.frontend.decompositions.composites import composite_kernels
from symshape.frontend.decompositions.correlation import correlation_kernels
from symshape.frontend.decompositions.least_squares import least_squares_kernels

aten: Any = torch.ops.aten


def gradient_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by``, while AOTAutograd traces gradients."""
    return {
        aten.var.correction: _var,
        aten.std.correction: _std,
        aten.var_mean.correction: _var_mean,
        aten.std_mean.correction: _std_mean,
        aten.prod.default: _prod,
        aten.prod.dim_int: _prod_along,
        aten.masked_select.default: _masked_select,
        aten.cumsum.default: _cumsum,
        aten.cumprod.default: _cumprod,
        aten.batch_norm.default: _batch_norm,
        aten.repeat.default: _repeat,
        **composite_kernels(),
        **correlation_kernels(),
        **least_squares_kernels(),
    }


def size_kernels() -> dict[Any, AutogradKernel]:
    """``gradient_kernels`` for Dynamo, which needs sizes only."""
    return {aten.batch_norm.default: _batch_norm, **composite_kernels(), **correlation_kernels()}


@functools.cache
def logsumexp_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for the result of ``logsumexp``."""

    def sizes(x: torch.Tensor, dim: Any, keepdim: bool = False) -> Any:
        symbolic = any(isinstance(size, torch.SymInt) for size in x.shape)
        return torch.sum(torch.exp(x), dim, keepdim).log() if symbolic else original(x, dim, keepdim)

    return sizes


def _var(original: Any, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not has_unbacked_sizes(x):
        return original(x, _named_dims(x, dim, correction), correction=correction, keepdim=keepdim)
    return _moments(x, dim, correction, keepdim)[0]


def _std(original: Any, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not has_unbacked_sizes(x):
        return original(x, _named_dims(x, dim, correction), correction=correction, keepdim=keepdim)
    return _moments(x, dim, correction, keepdim)[0].sqrt()


def _var_mean(original: Any, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not has_unbacked_sizes(x):
        return original(x, _named_dims(x, dim, correction), correction=correction, keepdim=keepdim)
    return _moments(x, dim, correction, keepdim)


def _std_mean(original: Any, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not has_unbacked_sizes(x):
        return original(x, _named_dims(x, dim, correction), correction=correction, keepdim=keepdim)
    variance, mean = _moments(x, dim, correction, keepdim)
    return variance.sqrt(), mean


def _named_dims(x: torch.Tensor, dim: Any, correction: Any) -> Any:
    """All dims by number, where none are given: the gradient of the variance of all elements branches on whether there
    are more than ``correction`` of them, that along dims divides by the difference, which gives the same NaN of one."""
    is_total = dim is None or (isinstance(dim, Sequence) and not dim)
    if not is_total or correction not in (None, 0, 1) or not any(map(is_general, x.shape)):
        return dim
    return list(range(x.dim()))


def _moments(x: torch.Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """With deviations from a detached mean: the term that the mean's own gradient adds to the variance's is a sum of
    deviations, 0."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    dims = _dims(dim, x.dim())
    mean = wide.mean(dims, keepdim=keepdim)
    centre = wide.detach().mean(dims, keepdim=True)
    count: Any = 1
    for d in dims:
        count = count * x.size(d)
    left: Any = torch.sym_max(count - (1 if correction is None else correction), 0)  # type: ignore[no-untyped-call]
    return ((wide - centre) ** 2).sum(dims, keepdim).div(left).to(x.dtype), mean.to(x.dtype)


def _dims(dim: Any, rank: int) -> list[int]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(rank))
    return [d % max(rank, 1) for d in ([dim] if isinstance(dim, int) else dim)]


class _Product(torch.autograd.Function):
    """The product along a dim. With one element 0, the gradient of that element is the product of all others, and
    theirs is 0; with more zeros, all are 0. The usual form makes two running products of all other elements, and tests
    for emptiness and for a single element.

    ``dim``: None for the product of all elements, which has no dims.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int | None, keepdim: bool, original: Any) -> torch.Tensor:
        result: torch.Tensor = original(x) if dim is None else original(x, dim, keepdim)
        ctx.dim, ctx.keepdim = dim, keepdim
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, result = ctx.saved_tensors
        zero = x == 0
        nonzero = torch.where(zero, 1, x)
        if ctx.dim is None:
            zeros, others = zero.sum(), nonzero.prod()
        else:
            zeros, others = zero.sum(ctx.dim, keepdim=True), nonzero.prod(ctx.dim, keepdim=True)
            if not ctx.keepdim:
                gradient, result = gradient.unsqueeze(ctx.dim), result.unsqueeze(ctx.dim)
        at_zero = torch.where(zeros == 1, others, 0)
        elsewhere = torch.where(zeros == 0, result, 0) / nonzero
        return gradient * torch.where(zero, at_zero, elsewhere).conj(), None, None, None


def _prod(original: Any, x: torch.Tensor, *, dtype: Any = None) -> Any:
    if not _is_differentiated(x):
        return original(x, dtype=dtype)
    return _Product.apply(x if dtype is None else x.to(dtype), None, False, original)  # type: ignore[no-untyped-call]


def _prod_along(original: Any, x: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if not (_is_differentiated(x) and x.dim()):
        return original(x, dim, keepdim, dtype=dtype)
    return _Product.apply(x if dtype is None else x.to(dtype), dim, keepdim, original)  # type: ignore[no-untyped-call]


def _is_differentiated(x: torch.Tensor) -> bool:
    """Whether gradients are wanted, of a tensor with sizes that are not known while it is traced."""
    return any(isinstance(size, torch.SymInt) for size in x.shape) and _by_function(x)


def _by_function(x: torch.Tensor) -> bool:
    """Whether gradients are required, which our ``autograd.Function`` computes."""
    return torch.is_grad_enabled() and x.requires_grad and not in_transform()


class _RunningSum(torch.autograd.Function):
    """Its gradient is the running sum from the end. The usual form tests for emptiness."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, original: Any) -> torch.Tensor:
        ctx.dim = dim
        result: torch.Tensor = original(x, dim)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _sum_from_the_end(gradient, ctx.dim), None, None


def _sum_from_the_end(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.flip(dim).cumsum(dim).flip(dim)


def _cumsum(original: Any, x: torch.Tensor, dim: int, *, dtype: Any = None) -> Any:
    if not (_by_function(x) and x.dim() and has_unbacked_sizes(x)):
        return original(x, dim, dtype=dtype)
    return _RunningSum.apply(x if dtype is None else x.to(dtype), dim, original)  # type: ignore[no-untyped-call]


class _RunningProduct(torch.autograd.Function):
    """The running product. Before the first 0 the gradient is the sum of the gradients of later products times these,
    divided by the element; at the first 0 the same sum without the factor; after it 0. The usual form is traced as a
    loop over the elements."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, original: Any) -> torch.Tensor:
        result: torch.Tensor = original(x, dim)
        ctx.dim = dim
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, result = (saved.conj() for saved in ctx.saved_tensors)
        zero = x == 0
        seen = zero.cumsum(ctx.dim)
        first = zero & (seen == 1)
        without = torch.where(first, 1, x).cumprod(ctx.dim)
        before = _sum_from_the_end(torch.where(seen == 0, gradient * result, 0), ctx.dim) / torch.where(zero, 1, x)
        behind = torch.where(seen == 1, gradient * without, 0).sum(ctx.dim, keepdim=True)
        at_first = torch.where(first, behind, 0)
        return torch.where(seen == 0, before, at_first), None, None


def _cumprod(original: Any, x: torch.Tensor, dim: int, *, dtype: Any = None) -> Any:
    if not (_by_function(x) and x.dim()):
        return original(x, dim, dtype=dtype)
    return _RunningProduct.apply(x if dtype is None else x.to(dtype), dim, original)  # type: ignore[no-untyped-call]


def _masked_select(original: Any, x: torch.Tensor, mask: torch.Tensor) -> Any:
    if not x.requires_grad or not max(x.dim(), mask.dim()):
        return original(x, mask)
    whole, spread = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    return aten.index.Tensor(whole, [spread])


def _batch_norm(
    original: Any,
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Any:
    """The usual form tests for an empty batch, which leaves the running statistics unchanged."""
    if not has_unbacked_sizes(x):
        if training or x.dim() < 2 or not any(map(is_general, x.shape)):
            return original(x, weight, bias, mean, var, training, momentum, eps, cudnn)
        return aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]
    some = torch.full((), x.numel(), device=x.device) > 0
    if weight is not None:
        weight = torch.where(some, weight, 1)  # its gradient is 0 where there is nothing, and not NaN
    if not training or mean is None or var is None:
        return aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]
    new = mean.clone(), var.clone()
    result = aten.native_batch_norm(x, weight, bias, *new, training, momentum, eps)[0]
    for old, found in zip((mean, var), new):
        old.copy_(torch.where(some, found, old))
    return result


def _repeat(original: Any, x: torch.Tensor, repeats: Sequence[Any]) -> Any:
    """Its own gradient tests for repeats of 0, and cuts the result in pieces of x's size."""
    if not (x.requires_grad and torch.is_grad_enabled()):
        return original(x, repeats)
    sizes = [1] * (len(repeats) - x.dim()) + list(x.shape)
    if not any(isinstance(n, torch.SymInt) and is_unbacked(n) for n in (*repeats, *sizes)):
        return original(x, repeats)
    apart = x.reshape([part for size in sizes for part in (1, size)])
    whole = apart.expand([part for pair in zip(repeats, sizes) for part in pair])
    return whole.reshape([n * size for n, size in zip(repeats, sizes)])
