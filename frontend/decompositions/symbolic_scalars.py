"""Differentiates operators with a symbolic Scalar whose gradient in C++ reads its value.

Such an operator becomes one with a tensor of that number, or parts that have other gradients. Where nothing is
differentiated it stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.operators import AutogradKernel

aten: Any = torch.ops.aten


def scalar_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    return {
        aten.pow.Tensor_Scalar: _pow,
        aten.pow.Scalar: _exponential,
        aten.lerp.Scalar: _lerp,
        aten.celu.default: _celu,
    }


def is_differentiated(number: Any, x: torch.Tensor) -> bool:
    """Whether a number is symbolic, and the gradient by a tensor is wanted."""
    is_symbolic = isinstance(number, (torch.SymFloat, torch.SymInt))
    return is_symbolic and torch.is_grad_enabled() and x.requires_grad


def _pow(original: Any, x: torch.Tensor, exponent: Any) -> Any:
    return x ** _tensor(exponent, x) if is_differentiated(exponent, x) else original(x, exponent)


def _exponential(original: Any, base: Any, x: torch.Tensor) -> Any:
    return _tensor(base, x) ** x if is_differentiated(base, x) else original(base, x)


def _lerp(original: Any, x: torch.Tensor, end: torch.Tensor, weight: Any) -> Any:
    either = is_differentiated(weight, x) or is_differentiated(weight, end)
    return torch.lerp(x, end, _tensor(weight, x)) if either else original(x, end, weight)


def _celu(original: Any, x: torch.Tensor, alpha: Any = 1.0) -> Any:
    return aten.elu.default(x, alpha, 1.0, 1 / alpha) if is_differentiated(alpha, x) else original(x, alpha)


def _tensor(number: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), number, dtype=like.dtype, device=like.device)
