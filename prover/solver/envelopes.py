"""Linear constraints that a product ``m = x*y`` satisfies (McCormick envelopes).

From ranges of the factors: McCormick's envelope (G. P. McCormick, Mathematical Programming 10, 1976), since the product
of two nonnegative numbers, such as x - low(x) and y - low(y), is nonnegative. From rows: the same with a row as one of
the numbers, if all products that occur have a variable (reformulation-linearisation: H. D. Sherali and W. P. Adams,
1990).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from symshape.prover.solver.encode import Linear, Row
from symshape.prover.solver.propagate import Ranges

Products = Mapping[tuple[int, int], int]


def envelopes(products: Products, ranges: Ranges) -> Iterator[Row]:
    """The rows for every product; equalities if a factor has a single value."""
    for (left, right), result in products.items():
        if ranges.width(left) == 0:
            yield _scaled(result, right, ranges.low[left] or 0)
        elif ranges.width(right) == 0:
            yield _scaled(result, left, ranges.low[right] or 0)
        else:
            yield from _mccormick(left, right, result, ranges)
            if left == right:
                for sign in (1, -1):  # a square is at least its root
                    yield Linear({result: 1}).plus(Linear({left: 1}), sign).row()


def row_products(rows: Iterable[Row], products: Products, ranges: Ranges) -> Iterator[Row]:
    """The product of each row with each bound of a factor's range, if every product in it has a variable."""
    partners: dict[int, dict[int, int]] = {}  # factor -> other factor -> their product
    for (left, right), result in products.items():
        partners.setdefault(left, {})[right] = result
        partners.setdefault(right, {})[left] = result
    for row in rows:
        if len(row.terms) < 2:
            continue
        for factor in sorted(partners.get(row.terms[0][0], ())):
            made = partners[factor]
            if any(variable not in made for variable, _ in row.terms):
                continue
            whole = Linear({made[variable]: coefficient for variable, coefficient in row.terms})
            whole = whole.plus(Linear({factor: 1}), row.constant)
            this = Linear(row.terms)
            this.constant = row.constant
            if row.equal:
                yield whole.row(equal=True)
                continue
            low, high = ranges.low[factor], ranges.high[factor]
            if low is not None:
                yield whole.plus(this, -low).row()
            if high is not None:
                yield whole.plus(this, -high).row(0, -1)


def _scaled(result: int, variable: int, factor: int) -> Row:
    return Linear({result: 1}).plus(Linear({variable: 1}), -factor).row(equal=True)


def _mccormick(left: int, right: int, result: int, ranges: Ranges) -> Iterator[Row]:
    for x_end, x_sign in ((ranges.low[left], 1), (ranges.high[left], -1)):
        for y_end, y_sign in ((ranges.low[right], 1), (ranges.high[right], -1)):
            if x_end is None or y_end is None:
                continue
            # x_sign*(x - x_end) * y_sign*(y - y_end) >= 0
            total = Linear({result: 1}).plus(Linear({left: 1}), -y_end).plus(Linear({right: 1}), -x_end)
            yield total.row(x_sign * y_sign * x_end * y_end, x_sign * y_sign)
