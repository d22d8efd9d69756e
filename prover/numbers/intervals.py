"""Interval arithmetic on integers: the range of a product, quotient or remainder from the ranges of its operands."""

from __future__ import annotations

from math import inf

Interval = tuple[int | None, int | None]
"""The least and the greatest value; None where there is no bound."""


def is_empty(interval: Interval) -> bool:
    """Whether an interval is empty: of an expression in a loop without points, or under contradicting facts."""
    low, high = interval
    return low is not None and high is not None and high < low


def interval_product(left: Interval, right: Interval) -> Interval:
    """The interval of the product of two independent numbers."""
    ends = [_end_product(a, b) for a in _with_infinities(left) for b in _with_infinities(right)]
    low, high = min(ends), max(ends)  # exact: the ends are ints or infinite
    return (low if isinstance(low, int) else None), (high if isinstance(high, int) else None)


def interval_square(base: Interval) -> Interval:
    """The interval of ``base * base``: never negative, which the product of two independent numbers may be."""
    low, high = interval_product(base, base)
    return max(low or 0, 0), high


def interval_remainder(base: Interval, divisor: Interval) -> Interval:
    """The interval of ``base % divisor`` for a divisor of at least 1."""
    (low, high), (least, greatest) = base, divisor
    below = None if greatest is None else greatest - 1
    if low is None or low < 0:
        return 0, below
    fits = high is not None and least is not None and high < least
    return (low if fits else 0), min((end for end in (high, below) if end is not None), default=None)


def interval_quotient(base: Interval, divisor: Interval) -> Interval:
    """The interval of ``base // divisor`` for a divisor of at least 1."""
    least, greatest = divisor[0] or 1, divisor[1]
    low, high = base
    if low is not None:
        low = low // least if low < 0 else 0 if greatest is None else low // greatest
    if high is not None:
        high = high // least if high >= 0 else -1 if greatest is None else high // greatest
    return low, high


def _with_infinities(interval: Interval) -> tuple[float, float]:
    low, high = interval
    return (-inf if low is None else low), (inf if high is None else high)


def _end_product(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if left == 0 or right == 0:
        return 0
    return inf if (left > 0) == (right > 0) else -inf
