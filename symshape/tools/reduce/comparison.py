"""Compares results up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.utils._pytree as pytree

# Relative to the value plus the result's root mean square. Deep graphs round thousands of times; wrong formulas are far
# off.
TOLERANCES: Final = {
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.float32: 1e-3,
    torch.complex64: 1e-3,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}


def differ(got: Any, wanted: Any, factor: float = 1.0) -> str:
    """A description of the first difference between two nested results; "" if there is none. ``factor`` scales the
    tolerances."""
    found, expected = pytree.tree_leaves(got), pytree.tree_leaves(wanted)
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    for i, (one, other) in enumerate(zip(found, expected)):
        if text := _differ(one, other, factor):
            return f"result {i}: {text}"
    return ""


_NOISE: Final = 64.0  # multiple of the rounding error that counts as rounding


def differ_beyond_rounding(got: Any, wanted: Any, rounded: Callable[[], Any]) -> str:
    """Like `differ`, but ignores numbers that are only rounding noise. ``rounded()`` computes the wanted result from
    inputs perturbed by a unit in the last place; a number counts as noise if it is no further off than that result, up
    to a factor of 64. (For example a gradient that is 0 but for rounding differs at every computation.)"""
    if not differ(got, wanted):
        return ""
    found, expected, noisy = (pytree.tree_leaves(one) for one in (got, wanted, rounded()))
    if not len(found) == len(expected) == len(noisy):
        return differ(got, wanted)
    for i, leaves in enumerate(zip(found, expected, noisy)):
        if (text := _differ(*leaves[:2], 1.0)) and not _is_rounding(*leaves):
            return f"result {i}: {text}"
    return ""


def _is_rounding(got: Any, wanted: Any, noisy: Any) -> bool:
    if not all(isinstance(one, torch.Tensor) for one in (got, wanted, noisy)):
        return bool(noisy != wanted)
    if not got.shape == wanted.shape == noisy.shape or got.dtype is not wanted.dtype:
        return False
    if got.dtype not in TOLERANCES:
        return not torch.equal(noisy, wanted)
    found, expected, other = _real(got), _real(wanted), _real(noisy)
    if not all(bool(one.isfinite().all()) for one in (found, expected, other)) or not found.numel():
        return False
    return bool((found - expected).abs().max() <= _NOISE * (other - expected).abs().max())


def rounded_otherwise(x: Any) -> Any:
    """Perturbs a float tensor in place, randomly by a unit in the last place; returns other values unchanged."""
    if not isinstance(x, torch.Tensor) or x.dtype not in TOLERANCES or x.layout != torch.strided:
        return x
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, x.shape, generator=generator).to(x.device) * 2 - 1
    with torch.no_grad():
        x.add_(x * (signs * torch.finfo(x.dtype).eps).to(x.dtype))
    return x


def _differ(got: Any, wanted: Any, factor: float) -> str:
    if not isinstance(got, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return "" if type(got) is type(wanted) and got == wanted else f"{got} instead of {wanted}"
    if got.shape != wanted.shape or got.dtype is not wanted.dtype:
        return f"{list(got.shape)} {got.dtype} instead of {list(wanted.shape)} {wanted.dtype}"
    if got.dtype not in TOLERANCES:
        wrong = int((got != wanted).sum())
        return f"{wrong} of {got.numel()} numbers differ" if wrong else ""
    return _floats_differ(_real(got), _real(wanted), TOLERANCES[got.dtype] * factor)


def _real(x: torch.Tensor) -> torch.Tensor:
    wide = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return wide.to(torch.float64)


def _floats_differ(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> str:
    finite = wanted.isfinite()
    if not torch.equal(got.isfinite(), finite):
        return "other elements are finite"
    if not torch.allclose(got[~finite], wanted[~finite], equal_nan=True):
        return "other elements are infinite"
    got, wanted = got[finite], wanted[finite]
    if not wanted.numel():
        return ""
    scale = wanted.square().mean().sqrt()
    error = (got - wanted).abs() - tolerance * (wanted.abs() + scale)
    wrong = int((error > 0).sum())
    return f"{wrong} of {got.numel()} numbers differ, by {(got - wanted).abs().max():.3g}" if wrong else ""
