"""Rules of gathers at the positions that a mask selects, which need no bounds check."""

from __future__ import annotations

from collections.abc import Sequence

from symshape.passes.lowering.aten.builder import Builder, Tensor
from symshape.passes.lowering.aten.indexing import placed
from symshape.passes.lowering.aten.rule_combinators import Rule
from symshape.passes.lowering.aten.scalar_body import Body, Scalar
from symshape.prover.numbers.expr import Expr, product


def _digits(m: Body, position: Scalar, sizes: Sequence[Expr]) -> list[Scalar]:
    """A row-major position as an index per dim."""
    found = []
    for i, size in enumerate(sizes):
        digit = m.arithmetic("floordiv", position, m.size(product(sizes[i + 1 :]))) if i + 1 < len(sizes) else position
        found.append(m.arithmetic("rem", digit, m.size(size)) if i else digit)
    return found


def select_at(b: Builder, x: Tensor, at: Tensor, dim: int, rank: int) -> Tensor:
    m, result = b.body, b.results[0]

    def code(position: Scalar) -> Scalar:
        digits = _digits(m, position, x.sizes[dim : dim + rank])
        inner = [m.op("arith.index_cast", "index", digit) for digit in digits]
        outer = [m.position(i if i < dim else i - rank + 1) for i in range(x.rank) if not dim <= i < dim + rank]
        return m.extract(x.value, [*outer[:dim], *inner, *outer[dim:]], x.dtype)

    return b.pointwise(result.sizes, result.dtype, [placed(b, at, dim)], code)


def unravel_positions(b: Builder, mask: Tensor, at: Tensor) -> Tensor:
    m, result = b.body, b.results[0]

    def code(position: Scalar) -> Scalar:
        first, *others = _digits(m, position, mask.sizes)
        for i, digit in enumerate(others, start=1):
            first = m.select(m.compare("eq", m.dim_index(1), m.constant(i, "i64")), digit, first)
        return first

    return b.pointwise(result.sizes, result.dtype, [placed(b, at, 0)], code)


RULES: dict[str, Rule] = {
    "symshape.select_at.default": select_at,
    "symshape.unravel_positions.default": unravel_positions,
}
