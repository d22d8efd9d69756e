"""The gradient of ``linalg.lstsq`` where it returns residuals; PyTorch's guards on the number of residuals."""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.operators import AutogradKernel, in_transform
from symshape.frontend.decompositions.broadcasting import with_equal_batches

aten: Any = torch.ops.aten


def least_squares_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    return {aten.linalg_lstsq.default: _lstsq}


class _Solution(torch.autograd.Function):
    """For a of full rank with more rows than columns, p its pseudo-inverse and r = b - a x, the residuals are sums of
    |r|^2. Since r is orthogonal to the columns of a, they change by 2 Re r^H (db - da x), and the solution by (a^H
    a)^-1 da^H r - p da x + p db, where (a^H a)^-1 = p p^H."""

    @staticmethod
    def forward(ctx: Any, original: Any, a: torch.Tensor, b: torch.Tensor, rcond: Any, driver: Any) -> Any:
        solution, residuals, rank, values = original(a, b, rcond, driver=driver)
        ctx.save_for_backward(a, b, solution)
        ctx.mark_non_differentiable(rank, values)
        return solution, residuals, rank, values

    @staticmethod
    def backward(ctx: Any, of_solution: torch.Tensor, of_residuals: torch.Tensor, *_: Any) -> Any:
        a, b, x = ctx.saved_tensors
        vector = x.dim() < a.dim()
        if vector:
            b, x, of_solution = b.unsqueeze(-1), x.unsqueeze(-1), of_solution.unsqueeze(-1)
        r = b - a @ x
        inverse = torch.linalg.pinv(a)
        of_b = inverse.mH @ of_solution
        of_a = r @ (inverse @ of_b).mH - of_b @ x.mH
        scaled = 2 * r * _for_each_column(of_residuals, x).unsqueeze(-2)
        of_a, of_b = of_a - scaled @ x.mH, of_b + scaled
        of_b = of_b.squeeze(-1) if vector else of_b
        return None, of_a.sum_to_size(a.shape), of_b.sum_to_size(ctx.saved_tensors[1].shape), None, None


def _for_each_column(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Zeros where there are no residuals, as the rank is not full. Only without a batch is that known from data."""
    if x.dim() > 2:
        return gradient
    return torch.cat([gradient, gradient.new_zeros(x.size(-1))])[: x.size(-1)]


def _lstsq(original: Any, a: torch.Tensor, b: torch.Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    wanted = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad) and not in_transform()
    if wanted and a.dim() == b.dim():
        a, b = with_equal_batches(a, b)
    default = "gelsy" if a.device.type == "cpu" else "gels"
    if not wanted or (driver or default) == "gelsy" or a.size(-2) <= a.size(-1):
        return original(a, b, rcond, driver=driver)
    return _Solution.apply(original, a, b, rcond, driver)  # type: ignore[no-untyped-call]
