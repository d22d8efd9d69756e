"""Unrolls loops with short bodies by two: which loops, and how a body is printed twice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_SHORT: Final = 8  # operations of a loop's body
_NAME: Final = re.compile(r"%\w+")


def is_short(body: Sequence[str]) -> bool:
    """Whether the body of a reduction's loop is written twice.

    What could be hoisted or run side by side has been (`Writer`, `interleave`), so that a longer body saves only the
    branch. Short loops gain by half as many branches: their end is predicted for up to twice as many elements. Those
    of a sweep lose: most often there is one round for each row, or none, and the round that is left over has its own
    test. So do masked loads (1.25 for sums of 131072 rows of 8 elements), whose loops run over rows.
    """
    return len(body) < _SHORT and not any(line.endswith("{") or "masked.load" in line for line in body)


def renamed(body: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The lines with other names for some values."""
    return [_NAME.sub(lambda found: names.get(found[0], found[0]), line) for line in body]


def defined(body: Sequence[str]) -> list[str]:
    """The values that lines without regions define, in order."""
    return [found[0] for line in body if (found := _NAME.match(line.lstrip())) and " = " in line]
