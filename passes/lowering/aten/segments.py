"""Rules of ``torch.segment_reduce`` and its gradient; segments are given by lengths or offsets.

A reduction over (segment, element of the dim), masked to the elements from the segment's start to its end: on CPUs its
loop ends where the segment does (``analysis/ragged_rows.py``), and producers of the elements fuse into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from symshape.artifact.element_types import LARGEST
from symshape.passes.lowering.aten.builder import ONE, Builder, Tensor, Unsupported, highest, lowest
from symshape.passes.lowering.aten.jagged import MESSAGE
from symshape.passes.lowering.aten.rule_combinators import Rule
from symshape.passes.lowering.aten.scalar_body import Scalar, compute_type, is_float
from symshape.prover.numbers.expr import Expr

_COMBINERS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min", "amax": "max", "amin": "min"}


@dataclass(frozen=True)
class _Segments:
    """Segments of dim ``axis`` of a tensor of ``sizes``; ``starts`` and ``stops``: i64, over the dims before it and the
    segments."""

    b: Builder
    sizes: tuple[Expr, ...]
    axis: int
    starts: Tensor
    stops: Tensor

    @property
    def elements(self) -> Expr:
        return self.sizes[self.axis]

    @property
    def count(self) -> Expr:
        return self.starts.sizes[-1]

    @property
    def rows(self) -> tuple[Expr, ...]:
        """The sizes of a result with an element for each segment."""
        return (*self.sizes[: self.axis], self.count, *self.sizes[self.axis + 1 :])

    def of_rows(self, x: Tensor, sizes: Sequence[Expr]) -> Tensor:
        """Of each segment's number at the points of a space that begins as ``rows`` does."""
        return self.b.view(x, sizes, lambda *d: d[: self.axis + 1])

    def reduce(
        self, data: Tensor, dtype: str, combiner: str, neutral: Any, code: Callable[..., Scalar], *rows: Tensor
    ) -> Tensor:
        """``code(element, *what rows have for its segment)`` of all of a segment's elements, combined. Segments that
        are none (they decrease, or end past the elements) have none."""
        b, m, axis = self.b, self.b.body, self.axis
        sizes = (*self.rows[: axis + 1], self.elements, *self.rows[axis + 1 :])
        given = [self.of_rows(x, sizes) for x in (self.starts, self.stops)]
        given += [b.view(x, sizes, lambda *d: [*d[: axis + 1], *d[axis + 2 :]]) for x in rows]

        def element(start: Scalar, stop: Scalar, *others: Scalar) -> Scalar:
            zero = m.constant(0, "i64")
            there = m.op("arith.andi", "i1", self.is_one(start, stop), m.compare("le", stop, m.size(self.elements)))
            at = m.add(m.select(there, start, zero), m.dim_index(axis + 1))
            inside = m.compare("lt", at, m.select(there, stop, zero))
            index = m.op("arith.index_cast", "index", m.select(inside, at, zero))
            where = [m.position(d) for d in range(axis)], [m.position(d) for d in range(axis + 2, len(sizes))]
            value = m.extract(data.value, [*where[0], index, *where[1]], data.dtype)
            return m.select(inside, m.cast(code(value, *others), dtype), m.constant(neutral, dtype))

        return b.reduce(b.pointwise(sizes, dtype, given, element), [axis + 1], combiner)[0]

    def is_one(self, start: Scalar, stop: Scalar) -> Scalar:
        """Whether a segment does not begin before the first element, nor after it ends."""
        m = self.b.body
        return m.op("arith.andi", "i1", m.compare("ge", start, m.constant(0, "i64")), m.compare("ge", stop, start))

    def owners(self) -> Tensor:
        """The segment of each element: how many end at it or before it. Elements behind the last one have its number
        and one more."""
        b, m = self.b, self.b.body

        def end(stop: Scalar) -> Scalar:
            return m.max(m.min(stop, m.size(self.elements)), m.constant(0, "i64"))

        sizes = (*self.starts.sizes[:-1], self.elements + ONE)
        ends = b.pointwise(self.stops.sizes, "i64", [self.stops], end)
        dims = range(self.axis + 1)
        coordinates = [*range(self.axis), (ends, tuple(dims))]
        one = b.full([], "i64", 1)
        counts = b.scatter(b.full(sizes, "i64", 0), one, (), self.stops.sizes, coordinates, "add")
        return b.scan([counts], self.axis, [("i64", 0)], ["i64"], lambda total, new: [m.add(total[0], new[0])])[0]


def _segments(b: Builder, data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> _Segments:
    if b.target != "cpu":
        raise Unsupported("kernels of GPUs have no loops that end where a segment does")
    given = lengths if offsets is None else offsets
    if given is None or not given.rank:
        raise Unsupported("neither lengths nor offsets of segments")
    position = b.dim(axis, data.rank)
    outer = zip(given.sizes[:-1], data.sizes)
    if position != given.rank - 1 or not all(b.facts.equal(a, of_data) for a, of_data in outer):
        raise Unsupported("segments along another dim than the last one of their lengths")
    if given.dtype not in ("i32", "i64") or not is_float(data.dtype):
        raise Unsupported(f"segments of {data.dtype} by numbers of {given.dtype}")
    if offsets is not None:
        sizes = (*offsets.sizes[:-1], b.simplify(offsets.sizes[-1] - ONE))
        numbers = b.cast(offsets, "i64")
        starts, stops = (b.view(numbers, sizes, lambda *d, k=k: [*d[:-1], d[-1] + k]) for k in (0, 1))
        return _Segments(b, data.sizes, position, starts, stops)
    m, numbers = b.body, b.cast(given, "i64")
    stops = b.scan([numbers], position, [("i64", 0)], ["i64"], lambda total, new: [m.add(total[0], new[0])])[0]
    return _Segments(b, data.sizes, position, b.pointwise(stops.sizes, "i64", [stops, numbers], m.sub), stops)


def segment_reduce(
    b: Builder,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """``initial`` is the initial value of each segment's result; an empty segment yields it, or the identity element;
    its mean is NaN."""
    if indices is not None or reduce not in _COMBINERS:
        raise Unsupported("segments by indices, or a reduction that has no rule")
    if offsets is None and not unsafe:
        raise Unsupported("lengths that are to be checked first")
    segments, m = _segments(b, data, lengths, offsets, axis), b.body
    dtype, combiner = compute_type(data.dtype), _COMBINERS[reduce]
    neutral = {"add": 0, "mul": 1, "max": lowest(dtype), "min": highest(dtype)}[combiner]
    total = segments.reduce(data, dtype, combiner, neutral, lambda value: value)

    def finish(total: Scalar, start: Scalar, stop: Scalar) -> Scalar:
        end = m.select(segments.is_one(start, stop), stop, m.constant(-1, "i64"))
        checked = m.check_index(end, segments.elements + ONE, MESSAGE, "offsets")
        length = m.sub(m.op("arith.index_cast", "i64", checked), start)
        first = _initial(b, data.dtype, initial)
        total = total if first is None else m.arithmetic(combiner, first, total)
        if reduce != "mean":
            return m.select(m.compare("ge", length, m.constant(0, "i64")), total, m.constant(neutral, dtype))
        of_none = m.constant(float("nan"), dtype) if first is None else first
        some = m.compare("gt", length, m.constant(0, "i64"))
        return m.select(some, m.div(total, m.cast(length, dtype)), of_none)

    rows = [segments.of_rows(x, segments.rows) for x in (segments.starts, segments.stops)]
    return b.pointwise(segments.rows, data.dtype, [total, *rows], finish)


def _initial(b: Builder, dtype: str, initial: Any) -> Scalar | None:
    """The initial value as a number of the data's type, to which eager mode converts it first."""
    if initial is None:
        return None
    if isinstance(initial, (int, float)) and not _fits(initial, dtype):
        raise Unsupported(f"an initial value that is no number of {dtype}")
    return b.body.rounded(b.body.number(initial, "f64" if dtype == "f64" else "f32"), dtype)


def _fits(number: float, dtype: str) -> bool:
    return dtype in LARGEST and (number != number or abs(number) == float("inf") or abs(number) <= LARGEST[dtype])


def segment_reduce_backward(
    b: Builder,
    gradient: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    """The gradient of each element from that of its segment; 0 for elements of no segment."""
    if reduce not in _COMBINERS:
        raise Unsupported("a reduction that has no rule")
    segments = _segments(b, data, lengths, offsets, axis)
    m, position, sizes = b.body, segments.axis, data.sizes
    share = {"sum": _of_sum, "mean": _of_mean, "prod": _of_product}.get(reduce, _of_extremum)
    given, code = share(b, segments, data, output, initial)
    first = b.view(segments.starts, sizes, lambda *d: [*d[:position], Expr.const(0)])
    owners = b.view(segments.owners(), sizes, lambda *d: d[: position + 1])

    def element(value: Scalar, owner: Scalar, first: Scalar) -> Scalar:
        after = m.compare("ge", m.dim_index(position), first)
        inside = m.op("arith.andi", "i1", m.compare("lt", owner, m.size(segments.count)), after)
        row = m.op("arith.index_cast", "index", m.select(inside, owner, m.constant(0, "i64")))
        where = [row if d == position else m.position(d) for d in range(len(sizes))]
        numbers = [m.extract(x.value, where[: x.rank], x.dtype) for x in (gradient, *given)]
        return m.select(inside, code(value, *numbers), m.constant(0, numbers[0].dtype))

    return b.pointwise(sizes, data.dtype, [data, owners, first], element)


Share = tuple[list[Tensor], Callable[..., Scalar]]  # what segments have, and an element's gradient by it


def _of_sum(b: Builder, segments: _Segments, data: Tensor, output: Tensor, initial: Any) -> Share:
    return [], lambda value, gradient: gradient


def _of_mean(b: Builder, segments: _Segments, data: Tensor, output: Tensor, initial: Any) -> Share:
    m = b.body
    lengths = b.pointwise(segments.stops.sizes, "i64", [segments.stops, segments.starts], m.sub)

    def code(value: Scalar, gradient: Scalar, length: Scalar) -> Scalar:
        return m.div(gradient, m.cast(length, gradient.dtype))

    return [lengths], code


def _of_extremum(b: Builder, segments: _Segments, data: Tensor, output: Tensor, initial: Any) -> Share:
    """Elements that are the extremum share its gradient, if that is positive; of a negative one each has all, as in
    eager mode. NaN is an extremum of its own."""
    m = b.body

    def is_it(value: Scalar, extremum: Scalar) -> Scalar:
        return m.op("arith.ori", "i1", m.is_nan(value), m.compare("eq", value, extremum))

    equal = segments.reduce(data, "i64", "add", 0, is_it, output)

    def code(value: Scalar, gradient: Scalar, extremum: Scalar, equal: Scalar) -> Scalar:
        zero = m.constant(0, gradient.dtype)
        shared = m.op(
            "arith.andi",
            "i1",
            m.compare("gt", gradient, zero),
            m.compare("gt", equal, m.constant(1, "i64")),
        )
        share = m.select(shared, m.div(gradient, m.cast(equal, gradient.dtype)), gradient)
        return m.select(is_it(value, extremum), share, zero)

    return [output, equal], code


def _of_product(b: Builder, segments: _Segments, data: Tensor, output: Tensor, initial: Any) -> Share:
    """The product of the segment's other elements: the result divided by the element, but where that is 0 or NaN the
    product of all that are neither, if there is no other 0 or NaN."""
    m, dtype = b.body, compute_type(data.dtype)

    def is_zero(value: Scalar) -> Scalar:
        return m.compare("eq", value, m.constant(0, value.dtype))

    def is_either(value: Scalar) -> Scalar:
        return m.op("arith.ori", "i1", is_zero(value), m.is_nan(value))

    def usual(value: Scalar) -> Scalar:
        return m.select(is_either(value), m.constant(1, value.dtype), value)

    product = segments.reduce(data, dtype, "mul", 1, usual)
    zeros = segments.reduce(data, "i64", "add", 0, is_zero)
    invalid = segments.reduce(data, "i64", "add", 0, m.is_nan)

    def code(value: Scalar, gradient: Scalar, output: Scalar, *segment: Scalar) -> Scalar:
        product, zeros, invalid = segment
        first = _initial(b, data.dtype, initial)
        others = product if first is None else m.mul(first, product)
        zeros = m.sub(zeros, m.cast(is_zero(value), "i64"))
        invalid = m.sub(invalid, m.cast(m.is_nan(value), "i64"))
        some, zero = m.constant(0, "i64"), m.constant(0, value.dtype)
        others = m.select(m.compare("gt", zeros, some), m.mul(others, zero), others)
        others = m.select(m.compare("gt", invalid, some), m.constant(float("nan"), value.dtype), others)
        divided = m.div(m.mul(gradient, output), value)
        return m.select(is_either(value), m.mul(gradient, others), divided)

    return [output, product, zeros, invalid], code


RULES: dict[str, Rule] = {
    "aten.segment_reduce.default": segment_reduce,
    "aten._segment_reduce_backward.default": segment_reduce_backward,
}
