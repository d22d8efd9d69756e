"""Decompositions of ``cov`` and ``corrcoef`` that read no data while they are traced.

PyTorch's test weights and degrees of freedom with ``equal``, which the tracer cannot trace. Here requirements on
weights are asserted, and results that depend on the degrees of freedom are selected.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.operators import AutogradKernel

aten: Any = torch.ops.aten
_torch: Any = torch  # these have no types
_check, _sym_max = _torch._check, _torch.sym_max


def correlation_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by`` (``frontend/patches/operator_kernels.py``)."""
    return {aten.cov.default: _cov, aten.corrcoef.default: _corrcoef}


def _cov(
    original: Any,
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sums of products of deviations from the weighted mean, over the sum of weights less the correction (for
    aweights times their mean), which is at least 0. [variables, observations] -> [variables, variables]."""
    wrong = fweights is not None and (fweights.dim() > 1 or not _is_number_of_times(fweights))
    wrong |= aweights is not None and (aweights.dim() > 1 or not aweights.is_floating_point())
    if wrong or x.dim() > 2 or x.dtype == torch.bool:
        return _as_it_is(original, x, correction=correction, fweights=fweights, aweights=aweights)
    whole = x.unsqueeze(0) if x.dim() == 1 else x.reshape(1, 1) if x.dim() == 0 else x
    count = whole.size(1)
    weights = _weights(count, fweights, aweights)
    total: Any
    left: Any
    if weights is None:
        total, left = count, _sym_max(count - correction, 0)
    else:
        total = weights.sum()
        aten._assert_async.msg(total != 0, "cov(): weights sum to zero, can't be normalized")
        less: Any = correction
        if aweights is not None and correction != 0:
            less = correction * (weights * aweights).sum() / total
        left = total - less
        left = torch.where(left <= 0, 0, left)
    weighted = whole if weights is None else whole * weights
    deviations = whole - (weighted.sum(1) / total).unsqueeze(1)
    others = deviations if weights is None else deviations * weights
    result: torch.Tensor = (torch.mm(deviations, others.t().conj()) / left).squeeze()
    return result


def _as_it_is(original: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The usual form, for arguments that are an error in eager mode."""
    result: torch.Tensor = original(*args, **kwargs)
    return result


def _is_number_of_times(x: torch.Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def _weights(count: Any, frequencies: torch.Tensor | None, others: torch.Tensor | None) -> torch.Tensor | None:
    """The product of both."""
    given = {"fweights": frequencies, "aweights": others}
    product = None
    for name, weights in given.items():
        if weights is not None:
            _check(weights.numel() == count, lambda: "cov(): expected one weight for each observation")
            aten._assert_async.msg((weights >= 0).all(), f"cov(): {name} cannot be negative")
            product = weights if product is None else product * weights
    return product


def _corrcoef(original: Any, x: torch.Tensor) -> torch.Tensor:
    if x.dim() > 2 or x.dtype == torch.bool:
        return _as_it_is(original, x)
    covariance = _cov(None, x)
    if covariance.dim() == 0:
        return covariance / covariance
    variance = covariance.diagonal()
    deviation = (variance.real if variance.is_complex() else variance).sqrt()
    found = covariance / deviation.unsqueeze(1) / deviation
    if found.is_complex():
        return torch.complex(found.real.clip(-1, 1), found.imag.clip(-1, 1))
    return found.clip(-1, 1)
