"""The smallest part of a list that still does the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest(items: Sequence[T], suffices: Callable[[list[T]], bool]) -> list[T]:
    """Items that suffice while none can be left out, given that all suffice and that more never harm.

    Leaves out halves before quarters before single ones (A. Zeller and R. Hildebrandt, "Simplifying and isolating
    failure-inducing input", 2002). Later items go first. A test that answers False for want of budget keeps an item
    too many, which is no error.
    """
    kept = list(items)
    if not kept or suffices([]):
        return []
    size = (len(kept) + 1) // 2
    while True:
        position = len(kept)
        while position > 0:
            start = max(position - size, 0)
            without = kept[:start] + kept[position:]
            if len(without) < len(kept) and suffices(without):
                kept = without
            position = start
        if size == 1:
            return kept
        size = (size + 1) // 2 if size > 2 else 1
