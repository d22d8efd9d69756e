"""Rules of jagged rows (``offsets`` has the start of each row, and the end of the last)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.passes.lowering.aten.builder import ONE, Builder, Tensor, Unsupported, highest, lowest
from symshape.passes.lowering.aten.rule_combinators import Rule
from symshape.passes.lowering.aten.scalar_body import Scalar, is_float
from symshape.prover.numbers.expr import Expr

MESSAGE = "offsets decrease or end past the values"


def padded(b: Builder, values: Tensor, offsets: Sequence[Tensor], max_lengths: Any, padding: float = 0.0) -> Tensor:
    """``result[row, i, d]`` is ``values[offsets[row] + i, d]``, or the padding if the row has no such element.

    A gather: a reduction of the padded rows reads the values directly, and the padding is never stored. The offsets of
    every row with a point are checked; invalid offsets cause no out-of-range read.
    """
    _require_rows(offsets, values, 2)
    count, sizes, m = values.sizes[0], b.results[0].sizes, b.body
    if b.target != "cpu" and not b.facts.nonnegative(count - ONE):
        raise Unsupported("on GPUs an element is read for the padding too, and there may be none")
    starts, stops = (b.view(offsets[0], sizes, lambda row, i, d, k=k: [row + k]) for k in (0, 1))

    def code(start: Scalar, stop: Scalar) -> Scalar:
        start, stop = _checked(b, start, stop, count)
        at = m.add(start, m.dim_index(1))
        inside = m.compare("lt", at, stop)
        index = m.op("arith.index_cast", "index", m.select(inside, at, m.constant(0, "i64")))
        value = m.extract(values.value, [index, m.position(2)], values.dtype)
        return m.select(inside, value, m.number(_saturated(padding, values.dtype), value.dtype))

    return b.pointwise(sizes, values.dtype, [starts, stops], code)


def _saturated(number: float, dtype: str) -> Any:
    """The nearest number of a dtype: extrema of integers are padded with an infinity."""
    if is_float(dtype):
        return number
    low, high = int(lowest(dtype)), int(highest(dtype))
    return high if number >= high else max(low, int(number)) if number > low else low


def values_of_padded(b: Builder, rows: Tensor, offsets: Sequence[Tensor], total: Any = None) -> Tensor:
    """``result[offsets[row] + i, d]`` is ``rows[row, i, d]``; elements in no row, or past the end of their row, are 0.

    A gather by the row of each value, which one pass over the values finds: 1 is added where a row ends, and the prefix
    sum is the number of rows that have ended. Rows that are one broadcast element (``x[:, None].expand``) are read as
    such. All offsets are checked.
    """
    _require_rows(offsets, rows, 3)
    sizes, m = b.results[0].sizes, b.body
    row_count, length, _ = rows.sizes
    if b.target != "cpu":
        raise Unsupported("the row of each value is a scan, and kernels of GPUs have none")
    ended = b.view(_rows_ended(b, offsets[0], sizes[0]), sizes, lambda v, d: [v])

    def code(row: Scalar) -> Scalar:
        zero = m.constant(0, "i64")
        start = m.extract(offsets[0].value, [m.op("arith.index_cast", "index", row)], offsets[0].dtype)
        at = m.sub(m.dim_index(0), m.cast(start, "i64"))
        within = m.op("arith.andi", "i1", m.compare("ge", at, zero), m.compare("lt", at, m.size(length)))
        inside = m.op("arith.andi", "i1", within, m.compare("lt", row, m.size(row_count)))
        indices = [m.op("arith.index_cast", "index", m.select(inside, one, zero)) for one in (row, at)]
        value = m.extract(rows.value, [*indices, m.position(1)], rows.dtype)
        return m.select(inside, value, m.number(0, value.dtype))

    return b.pointwise(sizes, rows.dtype, [ended], code)


def _require_rows(offsets: Sequence[Tensor], x: Tensor, rank: int) -> None:
    if len(offsets) != 1 or x.rank != rank:
        raise Unsupported("rows that are ragged in several dims")
    if offsets[0].dtype not in ("i32", "i64"):
        raise Unsupported(f"offsets of {offsets[0].dtype}")


def _checked(b: Builder, start: Scalar, stop: Scalar, count: Expr) -> tuple[Scalar, Scalar]:
    """Start and end of a row, as i64, among ``count`` values; for invalid offsets the row is empty, and the call ends
    with an error."""
    m = b.body
    start, stop = m.cast(start, "i64"), m.cast(stop, "i64")
    rising = m.op("arith.andi", "i1", m.compare("ge", start, m.constant(0, "i64")), m.compare("ge", stop, start))
    checked = m.check_index(m.select(rising, stop, m.constant(-1, "i64")), count + ONE, MESSAGE, "offsets")
    stop = m.op("arith.index_cast", "i64", checked)
    return m.select(rising, start, stop), stop


def _rows_ended(b: Builder, offsets: Tensor, count: Expr) -> Tensor:
    """For each of ``count`` values, the number of rows that end at or before it."""
    rows, m = offsets.sizes[0] - ONE, b.body
    starts, stops = (b.view(offsets, [rows], lambda row, k=k: [row + k]) for k in (0, 1))
    ends = b.pointwise([rows], "i64", [starts, stops], lambda start, stop: _checked(b, start, stop, count)[1])
    one, none = b.full([], "i64", 1), b.full([count + ONE], "i64", 0)
    marks = b.scatter(none, one, (), [rows], [(ends, (0,))], "add", repeats=True)
    first = b.view(marks, [count], lambda v: [v])
    (found,) = b.scan([first], 0, [("i64", 0)], ["i64"], lambda before, now: [m.add(before[0], now[0])])
    return found


RULES: dict[str, Rule] = {
    "aten._jagged_to_padded_dense_forward.default": padded,
    "aten._padded_dense_to_jagged_forward.default": values_of_padded,
}
