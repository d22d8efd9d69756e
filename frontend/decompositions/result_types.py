"""Type promotion by eager mode's rule, where PyTorch's tracing rule has another one.

In both a tensor without dims has lower priority than one with dims. For these operators PyTorch's Python rules give a
scalar dims before promotion, or do not, where eager mode does the opposite: the graph then has another type than the
kernel returns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def with_eager_types() -> Mapping[Any, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Operator -> a function that gives PyTorch's decomposition, which is its tracing rule too, eager mode's type."""
    aten: Any = torch.ops.aten
    return {
        aten.block_diag.default: _block_diag,
        aten.addr.default: _addr,
        aten.index_add.default: _index_add,
        # ``threshold_backward`` of an int64 gradient and a float32 input is float32, and not of the gradient's type.
        aten.threshold_backward.default: _typed(torch.result_type),
        aten.native_dropout_backward.default: _typed(_scaled),
        aten.huber_loss.default: _typed(lambda x, _: x.dtype),
        **dict.fromkeys(
            [aten.mish_backward.default, aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default],
            _typed(lambda gradient, x: x.dtype),
        ),
    }


def _typed(dtype_of: Callable[[torch.Tensor, torch.Tensor], torch.dtype]) -> Callable[..., Any]:
    """The type follows from the first two operands."""

    def wrap(rule: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(rule)  # the tracer looks at the name
        def decomposition(first: torch.Tensor, second: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            found, dtype = rule(first, second, *args, **kwargs), dtype_of(first, second)
            return found.to(dtype) if isinstance(found, torch.Tensor) and found.dtype != dtype else found

        return decomposition

    return wrap


def _scaled(gradient: torch.Tensor, mask: torch.Tensor) -> torch.dtype:
    """The type of ``gradient * mask * scale``, where the scale is a float."""
    found = torch.result_type(gradient, mask)
    return found if found.is_floating_point or found.is_complex else torch.get_default_dtype()


def _index_add(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The factor is of the tensor's type first: PyTorch's rule refuses a float for integers, and 2 for booleans."""

    @functools.wraps(rule)
    def decomposition(
        x: torch.Tensor, dim: int, index: torch.Tensor, tensor: torch.Tensor, *, alpha: Any = 1
    ) -> torch.Tensor:
        if x.dtype == torch.bool:
            alpha = bool(alpha)
        elif not (x.dtype.is_floating_point or x.dtype.is_complex) and isinstance(alpha, float | torch.SymFloat):
            alpha = torch.sym_int(alpha)
        found: torch.Tensor = rule(x, dim, index, tensor, alpha=alpha)
        return found

    return decomposition


def _block_diag(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Scalars become matrices, but count as scalars."""

    def decomposition(tensors: Sequence[torch.Tensor]) -> Any:
        dtype = result_type(tensors)
        return rule([x.to(dtype) for x in tensors])

    return decomposition


def _addr(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar is expanded to a matrix, and has its priority."""

    def decomposition(x: torch.Tensor, *vectors: torch.Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
        dtype = functools.reduce(torch.promote_types, [one.dtype for one in (x, *vectors)])
        return rule(*(one.to(dtype) for one in (x, *vectors)), beta=beta, alpha=alpha)

    return decomposition


def result_type(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Tensors with dims decide; scalars count where their kind of number is a higher one (``at::result_type``, without
    its rule for Python's numbers). ``torch.result_type`` takes two tensors only."""
    dims, scalars = ([x.dtype for x in tensors if (x.dim() > 0) is with_dims] for with_dims in (True, False))
    if not dims or not scalars:
        return functools.reduce(torch.promote_types, dims or scalars)
    higher, lower = (functools.reduce(torch.promote_types, types) for types in (dims, scalars))
    if _kind(lower) <= _kind(higher):
        return higher
    return higher.to_complex() if higher.is_floating_point else torch.promote_types(higher, lower)


def _kind(dtype: torch.dtype) -> int:
    """Bool, integers, floats, complex numbers."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)
