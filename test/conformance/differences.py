"""Describes how two results differ; "" if they do not."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.utils._pytree as pytree

HALVES = (torch.float16, torch.bfloat16)
FACTOR = 1.5  # of eager's error: how far off its sums may be that are added in another order
FACTORS = {torch.float32: FACTOR} | dict.fromkeys(HALVES, FACTOR)
EXACTLY = {"rtol": 0.0, "atol": 0.0}
WRONG, LAYOUT = "wrong value", "wrong layout"


def difference(actual: Any, expected: Any, reference: Any = None, *, values: bool = True) -> tuple[str, str]:
    """(kind, what) of the first difference. ``reference``: the same in float64, or None if there is none.

    Floats may differ by the tolerances of ``torch.testing.assert_close`` for their dtype, from eager's results or from
    the float64 ones. Where eager mode itself is farther off, a float32 result may be at most FACTOR times as far from
    float64 as eager's is. Half types must be equal to eager's, or at most FACTOR times as far from float64.
    """
    ours, theirs = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    if len(ours) != len(theirs):
        return WRONG, f"{len(ours)} results instead of {len(theirs)}"
    wide = pytree.tree_leaves(reference)
    wide = wide if len(wide) == len(theirs) else [None] * len(theirs)
    for i, (mine, other, exact) in enumerate(zip(ours, theirs, wide)):
        kind, text = _leaf(mine, other, exact, values)
        if text:
            return kind, text if len(ours) == 1 else f"result {i}: {text}"
    return "", ""


def _leaf(mine: Any, other: Any, exact: Any, values: bool) -> tuple[str, str]:
    if isinstance(other, torch.nn.Module):  # a copy, whose tensors are compared by themselves
        return ("", "") if type(mine) is type(other) else (WRONG, f"{mine} instead of {other}")
    if not isinstance(other, torch.Tensor):
        same = type(mine) is type(other) and (mine == other or (mine != mine and other != other))
        if not same and isinstance(other, (float, complex)) and isinstance(mine, type(other)):
            same = abs(mine - other) <= 1e-6 * abs(other)
        return ("", "") if same or not values else (WRONG, f"{mine} instead of {other}")
    for what in ("dtype", "shape", "layout", "device", "requires_grad"):
        if getattr(mine, what, None) != getattr(other, what):
            return WRONG, f"{what} {getattr(mine, what, None)} instead of {getattr(other, what)}"
    if values and (text := value_difference(mine.detach(), other.detach(), exact)):
        return WRONG, text
    if other.layout == torch.strided and (text := stride_difference(mine, other)):
        return LAYOUT, text
    if mine.is_conj() != other.is_conj() or mine.is_neg() != other.is_neg():
        return LAYOUT, "another conjugate or negative bit"
    return "", ""


def stride_difference(mine: torch.Tensor, other: torch.Tensor) -> str:
    if other.numel() == 0:
        return ""
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (mine, other)]
    return "" if strides[0] == strides[1] else f"strides {tuple(mine.stride())} instead of {tuple(other.stride())}"


def value_difference(mine: torch.Tensor, other: torch.Tensor, exact: Any) -> str:
    if mine.dtype == torch.complex32:  # pairs of half numbers, and no less exact than these
        mine, other, exact = (_pairs(one) for one in (mine, other, exact))
    try:
        tight = mine.dtype in HALVES and isinstance(exact, torch.Tensor)
        torch.testing.assert_close(mine, other, equal_nan=True, check_stride=False, **(EXACTLY if tight else {}))
        return ""
    except AssertionError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(exact, torch.Tensor) and exact.shape == other.shape and other.is_floating_point():
        exact = exact.detach().to(torch.float64)
        errors = [distance(one, exact) for one in (mine, other)]
        allowed = FACTORS.get(mine.dtype, 1.0) * errors[1]
        if errors[0] < math.inf and (errors[0] <= allowed or not tight and _close(mine, exact)):
            return ""
        return f"error {errors[0]:.3g}, eager's {errors[1]:.3g}; " + " ".join(lines[:3])
    return " ".join(lines[:3])


def _pairs(x: Any) -> Any:
    return torch.view_as_real(x.resolve_conj().resolve_neg()) if isinstance(x, torch.Tensor) and x.is_complex() else x


def _close(mine: torch.Tensor, exact: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(mine, exact.to(mine.dtype), equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True


def distance(x: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error; infinite where one has an infinity or NaN that the other has not."""
    x = x.to(torch.float64)
    finite = exact.isfinite()
    if not torch.equal(x.isfinite(), finite):
        return math.inf
    return (x - exact)[finite].abs().max().item() if finite.any() else 0.0
