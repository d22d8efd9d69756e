"""Errors of results against exact ones, measured alike for every backend, over several draws of the inputs.

One draw of one number says little. Its error may be next to nothing by chance, and a sum that cancels has no scale of
its own. So the errors of a few numbers are those of many draws: the root mean square over the draws of the largest
difference, relative to that of the largest element.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import torch

from symshape.tools.measure import tensors_of

FACTOR: Final = 2.0  # of eager's error: what is accurate
NUMBERS: Final = 32  # of which an error is made, at least
_MOST_ELEMENTS: Final = 100_000_000  # of all draws of large inputs together
_LEAST_DRAWS: Final = 8
_FEW_ELEMENTS: Final = 10_000  # of an input whose results' largest errors are a matter of chance


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
    """How many draws make `NUMBERS` numbers of the smallest result, `_LEAST_DRAWS` at least; fewer of large inputs."""
    fewest = min((t.numel() for t in tensors_of(results) if t.is_floating_point() and t.numel()), default=NUMBERS)
    wanted, room = -(-NUMBERS // fewest), _MOST_ELEMENTS // max(elements, 1)
    least = _LEAST_DRAWS if elements < _FEW_ELEMENTS else 1
    return max(least, min(wanted, max(_LEAST_DRAWS, room)))


def accurate(ours: float, eagers: float, dtype: torch.dtype) -> bool:
    """Whether an error is at most `FACTOR` times eager's, or no more than what a result of the dtype may be off by."""
    return ours <= max(FACTOR * eagers, rounding(dtype))


def rounding(dtype: torch.dtype) -> float:
    """What the exact result is off by when it is rounded to the dtype, and a little of what is added before."""
    return 0.505 * torch.finfo(dtype).eps


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
