"""Propagates ranges of variables through linear constraints and products by interval arithmetic.

This is the usual bounds propagation of constraint solvers (R. Dechter, Constraint Processing, 2003, chapter 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

from symshape.prover.numbers.intervals import Interval, interval_product, interval_square
from symshape.prover.solver.encode import Row

# Each round goes over all rows; a chain of equalities settles in a few, and x < y < x would never end.
_MAX_ROUNDS: Final = 6
# Ends further from 0 are left out: those of x**4 >= x**3 would have thousands of digits after a few rounds.
_LARGEST: Final = 1 << 512


@final
class Ranges:
    """The range of each variable; None for no bound."""

    __slots__ = ("changed", "high", "low")

    def __init__(self, low: list[int | None], high: list[int | None]) -> None:
        self.low, self.high, self.changed = low, high, False

    def copy(self) -> Ranges:
        """A copy that can be narrowed on its own."""
        return Ranges(list(self.low), list(self.high))

    def raise_low(self, variable: int, value: int) -> None:
        """Requires variable >= value; a very large value is clamped, which weakens the bound."""
        value, low = min(value, _LARGEST), self.low[variable]
        if value >= -_LARGEST and (low is None or value > low):
            self.low[variable], self.changed = value, True

    def lower_high(self, variable: int, value: int) -> None:
        """Requires variable <= value; a very large value is clamped, which weakens the bound."""
        value, high = max(value, -_LARGEST), self.high[variable]
        if value <= _LARGEST and (high is None or value < high):
            self.high[variable], self.changed = value, True

    def interval(self, variable: int) -> Interval:
        """The range of a variable."""
        return self.low[variable], self.high[variable]

    def width(self, variable: int) -> int | None:
        """The number of values of a variable minus one; None for infinitely many."""
        low, high = self.low[variable], self.high[variable]
        return None if low is None or high is None else high - low

    def is_empty(self) -> bool:
        """Whether some variable has an empty range."""
        return any(
            low is not None and high is not None and low > high for low, high in zip(self.low, self.high, strict=True)
        )


def propagate(rows: Iterable[Row], products: Mapping[tuple[int, int], int], ranges: Ranges) -> bool:
    """Narrows the ranges in place; False when there is no solution."""
    rows = list(rows)
    for _ in range(_MAX_ROUNDS):
        ranges.changed = False
        for row in rows:
            if not _narrow(row.terms, row.constant, ranges):
                return False
            if row.equal and not _narrow(tuple((v, -c) for v, c in row.terms), -row.constant, ranges):
                return False
        for (left, right), result in products.items():
            _multiply(left, right, result, ranges)
            _divide(result, left, right, ranges)
            if left != right:
                _divide(result, right, left, ranges)
        if ranges.is_empty():
            return False
        if not ranges.changed:
            break
    return True


def _narrow(terms: tuple[tuple[int, int], ...], constant: int, ranges: Ranges) -> bool:
    """Narrows ranges by sum + constant >= 0; False if the greatest possible value of the sum is below that."""
    low, high = ranges.low, ranges.high
    unbounded = -1
    greatest = constant
    for variable, coefficient in terms:
        end = high[variable] if coefficient > 0 else low[variable]
        if end is not None:
            greatest += coefficient * end
        elif unbounded >= 0:
            return True
        else:
            unbounded = variable
    if unbounded < 0 and greatest < 0:
        return False
    for variable, coefficient in terms:
        if unbounded >= 0 and variable != unbounded:
            continue
        others = greatest
        if unbounded < 0:
            end = high[variable] if coefficient > 0 else low[variable]
            others -= coefficient * (end or 0)
        if coefficient > 0:  # coefficient*variable >= -others
            ranges.raise_low(variable, -(others // coefficient))
        else:
            ranges.lower_high(variable, others // -coefficient)
    return True


def _multiply(left: int, right: int, result: int, ranges: Ranges) -> None:
    """Narrows the range of a product to what its factors allow."""
    factor = ranges.interval(left)
    low, high = interval_square(factor) if left == right else interval_product(factor, ranges.interval(right))
    if low is not None:
        ranges.raise_low(result, low)
    if high is not None:
        ranges.lower_high(result, high)


def _divide(result: int, factor: int, other: int, ranges: Ranges) -> None:
    """The range of `other` where result == factor*other and the factor is at least 1."""
    least, greatest = ranges.low[factor], ranges.high[factor]
    if least is None or least < 1 or (greatest is not None and greatest < least):
        return
    low, high = ranges.low[result], ranges.high[result]
    if high is not None:
        divisor = least if high >= 0 else greatest
        ranges.lower_high(other, -1 if divisor is None else high // divisor)
    if low is not None:
        divisor = least if low <= 0 else greatest
        ranges.raise_low(other, 1 if divisor is None else -(-low // divisor))
