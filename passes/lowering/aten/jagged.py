"""Rules of what reads rows of unequal lengths: ``offsets`` says where each row begins and where the last one ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.passes.lowering.aten.builder import ONE, Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.elementwise import Rule
from symshape.passes.lowering.aten.scalar_body import Scalar, is_float

MESSAGE = "offsets decrease or end past the values"


def padded(b: Builder, values: Tensor, offsets: Sequence[Tensor], max_lengths: Any, padding: float = 0.0) -> Tensor:
    """``result[row, i, d]`` is ``values[offsets[row] + i, d]``, or the padding where the row has no such element.

    A gather: a reduction of the padded rows reads the values themselves, and what is padded never exists. The offsets
    of every row that has a point are checked; by offsets that are none nothing is read.
    """
    if len(offsets) != 1 or values.rank != 2:
        raise Unsupported("rows that are ragged in several dims")
    if not is_float(values.dtype) or offsets[0].dtype not in ("i32", "i64"):
        raise Unsupported(f"rows of {values.dtype}, offsets of {offsets[0].dtype}")
    count, sizes, m = values.sizes[0], b.results[0].sizes, b.body
    if b.target != "cpu" and not b.facts.nonnegative(count - ONE):
        raise Unsupported("on GPUs an element is read for the padding too, and there may be none")
    starts, stops = (b.view(offsets[0], sizes, lambda row, i, d, k=k: [row + k]) for k in (0, 1))

    def code(start: Scalar, stop: Scalar) -> Scalar:
        start, stop, zero = m.cast(start, "i64"), m.cast(stop, "i64"), m.constant(0, "i64")
        rising = m.op("arith.andi", "i1", m.compare("ge", start, zero), m.compare("ge", stop, start))
        checked = m.check_index(m.select(rising, stop, m.constant(-1, "i64")), count + ONE, MESSAGE, "offsets")
        stop = m.op("arith.index_cast", "i64", checked)
        at = m.add(m.select(rising, start, stop), m.dim_index(1))
        inside = m.compare("lt", at, stop)
        index = m.op("arith.index_cast", "index", m.select(inside, at, zero))
        value = m.extract(values.value, [index, m.position(2)], values.dtype)
        return m.select(inside, value, m.number(padding, value.dtype))

    return b.pointwise(sizes, values.dtype, [starts, stops], code)


RULES: dict[str, Rule] = {
    "aten._jagged_to_padded_dense_forward.default": padded,
}
