"""Whether two results are the same numbers, up to rounding."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.utils._pytree as pytree

# Of the value and of the result's mean square: deep graphs round thousands of times, a wrong formula is far off.
TOLERANCES: Final = {
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.float32: 1e-3,
    torch.complex64: 1e-3,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}


def differ(got: Any, wanted: Any, factor: float = 1.0) -> str:
    """What is different of two nested results, "" for nothing. ``factor``: of the tolerances."""
    found, expected = pytree.tree_leaves(got), pytree.tree_leaves(wanted)
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    for i, (one, other) in enumerate(zip(found, expected)):
        if text := _differ(one, other, factor):
            return f"result {i}: {text}"
    return ""


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
