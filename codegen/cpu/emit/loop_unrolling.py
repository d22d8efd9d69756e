"""Unrolls loops with short bodies by two: which loops, and how the second copy of a body is printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_SHORT: Final = 8  # operations of a loop's body
_NAME: Final = re.compile(r"%\w+")


def is_short(body: Sequence[str]) -> bool:
    """Whether the loop of a reduction is unrolled by two.

    `Writer` has hoisted and interleaved what it can, so unrolling a longer body would save only the branch. Short loops
    gain from half as many branches: the exit is predicted for up to twice as many elements. Loops over few iterations
    lose (most often a sweep has one iteration per row, or none, and the remainder has a test of its own). So do masked
    loads (1.25 of the time for sums of 131072 rows of 8 elements), whose loops run over rows.
    """
    return len(body) < _SHORT and not any(line.endswith("{") or "masked.load" in line for line in body)


def renamed(body: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The lines with some values renamed."""
    return [_NAME.sub(lambda found: names.get(found[0], found[0]), line) for line in body]


def defined(body: Sequence[str]) -> list[str]:
    """The values that the lines define, in order. They must have no regions."""
    return [found[0] for line in body if (found := _NAME.match(line.lstrip())) and " = " in line]
