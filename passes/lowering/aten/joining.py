"""Rules of concatenation, padding, repetition, flips and rolls: views, and selects by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.machine.targets import CPU_MOST_INTERLEAVED
from symshape.passes.lowering.aten.builder import ZERO, Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import Rule, number
from symshape.passes.lowering.aten.scalar_body import Scalar, compute_type
from symshape.passes.lowering.aten.strided import require_memory
from symshape.passes.lowering.aten.views import clamp_start
from symshape.prover.numbers.expr import Expr, as_expr, maximum

# Each piece of a join is one masked read at every point. On a CPU a last dim of a few elements is unrolled
# (`codegen/cpu/schedule/small_dims.py`): each point reads what it is made of.
MOST_PIECES = 8
# A slice bound at least this large is the largest int64, which says "to the end".
NO_BOUND = 2**62


def cat(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Piece k is read if the position is in it: the first piece whose end is beyond the position is selected."""
    result = b.results[0]
    pieces = [x for x in tensors if x.rank == len(result.sizes)]  # an empty 1-D tensor joins with anything
    position = b.dim(dim, len(result.sizes))
    if not pieces or len(pieces) > _most_pieces(b, position):
        raise Unsupported(f"{len(pieces)} pieces")
    ends, views, start = [], [], ZERO
    for k, x in enumerate(pieces):
        end = start + x.sizes[position]
        views.append(_piece(b, x, position, start, None if k == len(pieces) - 1 else end))
        ends.append(end)
        start = end
    return _choose(b, views, position, ends)


def _most_pieces(b: Builder, position: int) -> int:
    sizes = b.results[0].sizes
    size = sizes[position].as_int() if position == len(sizes) - 1 and len(sizes) > 1 else None
    unrolled = b.target == "cpu" and size is not None and size <= CPU_MOST_INTERLEAVED
    return CPU_MOST_INTERLEAVED if unrolled else MOST_PIECES


def _piece(b: Builder, x: Tensor, position: int, start: Expr, end: Expr | None) -> Tensor:
    """``x`` over the result's points, read from ``start`` up to ``end`` (None: the result's)."""

    def domain(*d: Expr) -> list[Expr]:
        conditions = [] if start == ZERO else [d[position] - start]
        return conditions if end is None else [*conditions, end - 1 - d[position]]

    return b.view(
        x, b.results[0].sizes, lambda *d: [e - start if i == position else e for i, e in enumerate(d)], domain
    )


def _choose(b: Builder, views: Sequence[Tensor], position: int, ends: Sequence[Expr]) -> Tensor:
    m, result = b.body, b.results[0]

    def code(*values: Scalar) -> Scalar:
        cast = [m.cast(v, compute_type(result.dtype)) for v in values]
        chosen, at = cast[-1], m.dim_index(position)
        for value, end in reversed(list(zip(cast[:-1], ends))):
            chosen = m.select(m.compare("lt", at, m.size(end)), value, chosen)
        return chosen

    return b.pointwise(result.sizes, result.dtype, views, code)


def constant_pad(b: Builder, x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """Pads from the last dim inwards; a negative pad cuts off."""
    sizes, m = b.results[0].sizes, b.body
    before = {x.rank - 1 - i: as_expr(amount) for i, amount in enumerate(pad[::2])}
    first = [before.get(i, ZERO) for i in range(x.rank)]

    def bounds(d: Sequence[Any]) -> list[tuple[Any, Expr, str]]:
        """(position, bound, comparison) for each bound of the source that a position may miss."""
        found: list[tuple[Any, Expr, str]] = []
        for i, start in enumerate(first):
            last = start + x.sizes[i] - 1
            found += [] if b.facts.nonnegative(-start) else [(d[i], start, "ge")]
            found += [] if b.facts.nonnegative(last - (sizes[i] - 1)) else [(d[i], last, "le")]
        return found

    def domain(*d: Expr) -> list[Expr]:
        return [at - bound if kind == "ge" else bound - at for at, bound, kind in bounds(d)]

    def code(inside: Scalar) -> Scalar:
        chosen = inside
        for at, bound, kind in bounds(range(x.rank)):
            within = m.compare(kind, m.dim_index(at), m.size(bound))
            chosen = m.select(within, chosen, number(m, value, inside.dtype))
        return chosen

    source = b.view(x, sizes, lambda *d: [e - start for e, start in zip(d, first)], domain)
    return b.pointwise(sizes, x.dtype, [source], code)


def slice_scatter(
    b: Builder, x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Tensor:
    """``x`` with every ``step``-th element between two bounds taken from ``source``."""
    require_memory(b, x)
    position, m = b.dim(dim, x.rank), b.body
    size = x.sizes[position]
    first = clamp_start(b, 0 if start is None else start, size)
    to_the_end = end is None or (isinstance(end, int) and end >= NO_BOUND)
    last = size if to_the_end else clamp_start(b, end, size)

    _require_same_sizes(b, source, x, position)
    low = [] if first == ZERO else [("ge", first)]
    high = [] if b.facts.less_equal(size, last) else [("lt", last)]
    if not low and not high and step == 1:
        return b.cast(source, x.dtype)

    def read(*d: Expr) -> list[Expr]:
        return [(e - first) // step if i == position else e for i, e in enumerate(d)]

    def domain(*d: Expr) -> list[Expr]:
        return [d[position] - first] * len(low) + [last - 1 - d[position]] * len(high)

    def code(old: Scalar, new: Scalar) -> Scalar:
        at, new = m.dim_index(position), m.cast(new, old.dtype)
        for kind, bound in (*low, *high):
            new = m.select(m.compare(kind, at, m.size(bound)), new, old)
        if step == 1:
            return new
        rest = m.arithmetic("rem", m.sub(at, m.size(first)), number(m, step, "i64"))
        return m.select(m.compare("eq", rest, m.constant(0, "i64")), new, old)

    return b.pointwise(x.sizes, x.dtype, [x, b.view(source, x.sizes, read, domain)], code)


def _require_same_sizes(b: Builder, source: Tensor, x: Tensor, position: int) -> None:
    """Outside of the dim that is written, a source is read at x's positions: it must not broadcast."""
    pairs = [pair for i, pair in enumerate(zip(source.sizes, x.sizes)) if i != position]
    if source.rank != x.rank or not all(b.facts.equal(mine, theirs) for mine, theirs in pairs):
        raise Unsupported("a slice written from a tensor that broadcasts")


def select_scatter(b: Builder, x: Tensor, source: Tensor, dim: int, index: Any) -> Tensor:
    """``x`` with one index of a dim taken from ``source``."""
    require_memory(b, x)
    position, m = b.dim(dim, x.rank), b.body
    written = b.view(source, x.sizes, lambda *d: [*d[:position], *d[position + 1 :]])

    def code(old: Scalar, new: Scalar) -> Scalar:
        at = m.wrapped(m.size(as_expr(index)), x.sizes[position])
        return m.select(m.compare("eq", m.dim_index(position), at), m.cast(new, old.dtype), old)

    return b.pointwise(x.sizes, x.dtype, [x, written], code)


def diagonal_scatter(b: Builder, x: Tensor, source: Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """``x`` with a diagonal of two dims taken from ``source``, whose last dim runs along it."""
    require_memory(b, x)
    rows, columns, m = b.dim(dim1, x.rank), b.dim(dim2, x.rank), b.body
    down, right = maximum(-as_expr(offset), ZERO), maximum(as_expr(offset), ZERO)
    length = source.sizes[-1]

    def read(*d: Expr) -> list[Expr]:
        return [*(e for i, e in enumerate(d) if i not in (rows, columns)), d[rows] - down]

    def domain(*d: Expr) -> list[Expr]:
        return [d[rows] - down, down + length - 1 - d[rows]]

    def code(old: Scalar, new: Scalar) -> Scalar:
        row, column = m.sub(m.dim_index(rows), m.size(down)), m.sub(m.dim_index(columns), m.size(right))
        on = m.arithmetic("and", m.compare("eq", row, column), m.compare("ge", row, m.constant(0, "i64")))
        return m.select(on, m.cast(new, old.dtype), old)

    return b.pointwise(x.sizes, x.dtype, [x, b.view(source, x.sizes, read, domain)], code)


def flip(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    turned = {b.dim(d, x.rank) for d in dims} if x.rank else set()
    return b.view(x, x.sizes, lambda *d: [x.sizes[i] - 1 - e if i in turned else e for i, e in enumerate(d)])


def roll(b: Builder, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Each shift is reduced first, so that no operand of mod is negative."""
    shifts, dims = ([v] if isinstance(v, (int, Expr)) else list(v) for v in (shifts, dims))
    if len(shifts) != len(dims):
        raise Unsupported("a roll of the flattened tensor")
    total: dict[int, Expr] = {}
    for shift, dim in zip(shifts, dims):
        position = b.dim(dim, x.rank)
        total[position] = total.get(position, ZERO) + shift
    back = [modulo(size - modulo(total.get(i, ZERO), size), size) for i, size in enumerate(x.sizes)]
    return b.view(
        x, x.sizes, lambda *d: [modulo(e + back[i], x.sizes[i]) if i in total else e for i, e in enumerate(d)]
    )


def modulo(value: Expr, size: Expr) -> Expr:
    """``value % size``; for size 0 anything, since there is no point."""
    return ZERO if size == ZERO else value % size


def repeat(b: Builder, x: Tensor, repeats: Sequence[Any]) -> Tensor:
    lead = len(repeats) - x.rank

    def read(*d: Expr) -> list[Expr]:
        once = [times == 1 for times in repeats[lead:]]
        return [e if only else modulo(e, size) for e, size, only in zip(d[lead:], x.sizes, once)]

    return b.view(x, b.results[0].sizes, read)


RULES: dict[str, Rule] = {
    "aten.cat.default": cat,
    "aten.constant_pad_nd.default": constant_pad,
    "aten.slice_scatter.default": slice_scatter,
    "aten.select_scatter.default": select_scatter,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "prims.rev.default": flip,
    "aten.roll.default": roll,
    "aten.repeat.default": repeat,
}
