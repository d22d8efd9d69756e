"""Interval arithmetic against all points of small intervals, with and without ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from symshape.prover.numbers.intervals import (
    Interval,
    interval_product,
    interval_quotient,
    interval_remainder,
    interval_square,
)

FAR = 40  # beyond all ends: stands for infinity
ENDS = (None, -3, -1, 0, 2)
INTERVALS = [(low, high) for low in ENDS for high in (None, -2, 0, 1, 4) if None in (low, high) or low <= high]


def _points(interval: Interval) -> range:
    low, high = interval
    return range(-FAR if low is None else low, 1 + (FAR if high is None else high))


def _check(found: Interval, values: list[int], exact: bool) -> None:
    """All values are inside, and the ends are reached unless they are far away."""
    low, high = found
    assert low is None or low <= min(values)
    assert high is None or max(values) <= high
    if exact:
        assert (low is None) == (min(values) <= -FAR) and low in (None, min(values))
        assert (high is None) == (max(values) >= FAR) and high in (None, max(values))


def test_products() -> None:
    for left, right in itertools.product(INTERVALS, INTERVALS):
        values = [a * b for a in _points(left) for b in _points(right)]
        _check(interval_product(left, right), values, exact=True)
    for base in INTERVALS:
        _check(interval_square(base), [a * a for a in _points(base)], exact=True)


@pytest.mark.parametrize(
    ("rule", "compute"),
    [(interval_quotient, lambda a, b: a // b), (interval_remainder, lambda a, b: a % b)],
)
def test_quotients_and_remainders(
    rule: Callable[[Interval, Interval], Interval], compute: Callable[[int, int], int]
) -> None:
    for base, divisor in itertools.product(INTERVALS, [(1, 1), (1, 3), (2, 5), (3, None)]):
        _check(rule(base, divisor), [compute(a, b) for a in _points(base) for b in _points(divisor)], exact=False)
