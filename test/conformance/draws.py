"""Errors of narrow types over several draws of a sample's numbers.

One draw of a few numbers says little: eager mode's rounding of a scalar is exact now and then. So where a result is not
within the factor of `differences`, the errors decide that DRAWS draws have on the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from differences import FACTOR, FACTORS, WRONG, difference

DRAWS = 32
_GARBAGE = 2**-5  # where eager's error is infinite, and no measure: what overflows on the way often cancels besides


class Errors:
    """Sums of relative errors (root mean squares of a draw), of one tensor of the results."""

    def __init__(self) -> None:
        self.ours = self.theirs = 0.0
        self.count = 0

    def add(self, mine: torch.Tensor, other: torch.Tensor, exact: torch.Tensor) -> str:
        """One draw, relative to its largest number. Where eager's result is not finite but the exact one is, there must
        be eager's result, the exact one rounded, or a finite number near the exact one; where it is NaN, anything may
        have overflowed on the way, to either side."""
        rounded = exact.detach().to(mine.dtype).to(torch.float64)
        ours, theirs, exact = (one.detach().to(torch.float64) for one in (mine, other, exact))
        finite = exact.isfinite()
        either = _equal(ours, theirs) | _equal(ours, rounded) | finite & (ours.isfinite() | theirs.isnan())
        both = finite & theirs.isfinite()
        if not either.all() or not ours[both].isfinite().all():
            return "an infinity or NaN that neither eager's result nor the exact one has"
        if not both.any() and finite.any():
            return ""  # nothing to compare with
        if both.any():
            self.ours += _relative(ours, exact, both).square().mean().sqrt().item()
            self.theirs += _relative(theirs, exact, both).square().mean().sqrt().item()
        alone = _relative(ours, exact, finite & ours.isfinite() & ~both).abs()
        if alone.numel() and alone.max().item() > _GARBAGE:
            return f"relative error {alone.max().item():.3g} where eager's result is not finite"
        self.count += 1
        return ""

    def too_large(self) -> str:
        if not self.count:
            return "eager's result is not finite where the exact one is, in any draw"
        ours, theirs = (one / self.count for one in (self.ours, self.theirs))
        if ours <= FACTOR * theirs:
            return ""
        return f"relative error {ours:.3g}, eager's {theirs:.3g}, on the average of {self.count} draws"


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _relative(values: torch.Tensor, exact: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """These elements' errors, relative to the largest of them."""
    scale = max(exact[which].abs().tolist(), default=1.0) or 1.0
    return (values - exact)[which] / scale


def compare(draws: Iterator[tuple[Any, Any, Any]]) -> tuple[str, str]:
    """(kind, what) as of `difference`; ``draws``: trees of results, ours, eager's and in float64."""
    errors: dict[int, Errors] = {}
    for sides in draws:
        ours, theirs, wide = (pytree.tree_leaves(one) for one in sides)
        if len(ours) != len(theirs):
            return WRONG, f"{len(ours)} results instead of {len(theirs)}"
        for i, (mine, other) in enumerate(zip(ours, theirs)):
            exact = wide[i] if len(wide) == len(theirs) else None
            narrow = isinstance(other, torch.Tensor) and other.dtype in FACTORS and isinstance(exact, torch.Tensor)
            kind, text = difference(mine, other, values=not narrow)
            if narrow and not kind:
                kind, text = WRONG, errors.setdefault(i, Errors()).add(mine, other, exact)
            if text:
                return kind, f"result {i}: {text}"
    found = ((i, one.too_large()) for i, one in errors.items())
    return next(((WRONG, f"result {i}: {text}") for i, text in found if text), ("", ""))
