"""How far results are from exact ones, measured alike for every way to compute them: over several draws of the inputs.

One draw of one number says little. Its error may be next to nothing by chance, and a sum that cancels has no scale of
its own. So the errors of a few numbers are those of many draws: the root mean square over the draws of the largest
difference, relative to that of the largest element.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import torch

from symshape.measure import tensors_of

FACTOR: Final = 2.0  # of eager's error: what is accurate
NUMBERS: Final = 32  # of which an error is made, at least
_MOST_ELEMENTS: Final = 100_000_000  # of all draws of large inputs together
_LEAST_DRAWS: Final = 8


class Errors:
    """The errors of one way to compute some results."""

    def __init__(self) -> None:
        self._differences: list[list[float]] = []
        self._scales: list[list[float]] = []

    def add(self, actual: Any, exact: Any) -> None:
        """One draw: the results (tensors, nested as they may be) and the exact ones, float64 where they are floats."""
        found = [_difference(a, b) for a, b in zip(tensors_of(actual), tensors_of(exact), strict=True)]
        self._differences.append([difference for difference, _ in found])
        self._scales.append([scale for _, scale in found])

    def each(self) -> list[float]:
        """The error of each result; infinite where NaN, an infinity or a whole number did not match."""
        pairs = zip(map(_mean_square, zip(*self._differences)), map(_mean_square, zip(*self._scales)))
        return [off / scale if scale else (0.0 if off == 0.0 else math.inf) for off, scale in pairs]

    def largest(self) -> float:
        """The error of the worst result."""
        return max(self.each(), default=0.0)


def draws(results: Any, elements: int) -> int:
    """How many draws make `NUMBERS` numbers of the smallest result; fewer where the inputs are large."""
    fewest = min((t.numel() for t in tensors_of(results) if t.is_floating_point() and t.numel()), default=NUMBERS)
    return min(-(-NUMBERS // fewest), max(_LEAST_DRAWS, _MOST_ELEMENTS // max(elements, 1)))


def accurate(ours: float, eagers: float, dtype: torch.dtype) -> bool:
    """Whether an error is at most `FACTOR` times eager's, or no more than what a result of the dtype may be off by."""
    return ours <= max(FACTOR * eagers, rounding(dtype))


def rounding(dtype: torch.dtype) -> float:
    """Half types are computed in float32, and rounded once: half a unit, and what the float32 is off by. Where eager
    mode sums float32 in float64, its result is the exact one rounded; float32 may be off by two units."""
    resolution = torch.finfo(dtype).eps
    return 0.505 * resolution if dtype.itemsize == 2 else 2 * resolution


def _difference(actual: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """max|actual - exact| and max|exact|, of finite numbers."""
    if actual.shape != exact.shape:
        return math.inf, 1.0
    if not actual.is_floating_point():
        return (0.0 if torch.equal(actual, exact) else math.inf), 1.0
    difference = (actual.double() - exact).abs_()
    strange = ~difference.isfinite()
    if strange.any():
        same = (actual == exact) | (actual.isnan() & exact.isnan())
        if not bool(same[strange].all()):
            return math.inf, 1.0
        difference, exact = difference[~strange], exact[~strange]
    return (difference.max().item(), exact.abs().max().item()) if difference.numel() else (0.0, 0.0)


def _mean_square(values: Iterable[float]) -> float:
    found = list(values)
    return math.hypot(*found) / math.sqrt(len(found))
