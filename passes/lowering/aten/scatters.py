"""Rules of scatters: writes at data-dependent indices.

With one index for each row it is a selection by position, which fuses with its neighbours; all others become
``Builder.scatter``, a kernel of its own, which writes in order of the indices, so that results do not depend on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.artifact.element_types import HALF
from symshape.passes.lowering.aten.builder import ONE, ZERO, Builder, Tensor, Unsupported, highest, lowest
from symshape.passes.lowering.aten.indexing import of_another_rank, require_indices, without_dims
from symshape.passes.lowering.aten.rule_combinators import Rule
from symshape.passes.lowering.aten.scalar_body import Scalar, is_float
from symshape.prover.numbers.expr import Expr, product

_COMBINERS = {
    "add": "add",
    "multiply": "mul",
    "sum": "add",
    "mean": "add",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


def scatter(b: Builder, x: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str = "") -> Tensor:
    if not reduce and _one_for_each_row(b, x, dim, index):
        return _by_position(b, x, dim, index, value)
    return _along(b, x, dim, index, value, _COMBINERS[reduce] if reduce else "set")


def scatter_add(b: Builder, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _along(b, x, dim, index, source, "add")


def scatter_reduce(
    b: Builder, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Elements that do not take part are first replaced by the identity element."""
    return _reduced(b, x, reduce, include_self, lambda to, value, how: _along(b, to, dim, index, value, how), source)


def index_reduce(
    b: Builder, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    require_indices(index)
    position = b.dim(dim, x.rank)
    coordinates = [(index, (position,)) if i == position else i for i in range(x.rank)]
    sizes = [index.sizes[0] if i == position else s for i, s in enumerate(x.sizes)]

    def write(to: Tensor, value: Any, how: str) -> Tensor:
        written = value if isinstance(value, Tensor) else b.full([], to.dtype, value)
        return b.scatter(to, written, range(written.rank), sizes, coordinates, how)

    _require_native(x, _COMBINERS[reduce])
    return _reduced(b, x, reduce, include_self, write, source)


def index_put(
    b: Builder,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """As ``index_tensor`` reads: the indices broadcast together; their dims are where the first one was if all are
    adjacent, else in front."""
    at = {i: index for i, index in enumerate(indices) if index is not None}
    require_indices(*at.values())
    combiner = "add" if accumulate else "set"
    _require_native(x, combiner)
    positions = sorted(at)
    if not positions:
        raise Unsupported("no index")
    rank = max(index.rank for index in at.values())
    start = positions[0] if positions == list(range(positions[0], positions[0] + len(positions))) else 0
    kept = [i for i in range(x.rank) if i not in at]
    others = [d for d in range(len(kept) + rank) if not start <= d < start + rank]
    along = dict(zip(kept, others))
    joint = [
        _joint(b, [index.sizes[d - rank] for index in at.values() if index.rank >= -(d - rank)]) for d in range(rank)
    ]
    sizes = [ZERO] * (len(kept) + rank)
    sizes[start : start + rank] = joint
    for i, d in along.items():
        sizes[d] = x.sizes[i]
    coordinates: list[Any] = [along.get(i, 0) for i in range(x.rank)]
    for i, index in at.items():
        coordinates[i] = (index, range(start + rank - index.rank, start + rank))
    if values.rank > len(sizes):
        raise Unsupported("values of a higher rank than the indices")
    along_values = range(len(sizes) - values.rank, len(sizes))
    made = b.scatter(
        _accumulator(b, x, combiner), values, along_values, sizes, coordinates, combiner, repeats=True, wraps=True
    )
    return b.cast(made, x.dtype)


def _joint(b: Builder, sizes: Sequence[Expr]) -> Expr:
    """The size that these broadcast to."""
    others = [size for size in sizes if not b.is_one(size)]
    if any(not b.facts.equal(others[0], size) for size in others[1:]):
        raise Unsupported("indices that broadcast by sizes that are not known")
    return others[0] if others else ONE


def _reduced(b: Builder, x: Tensor, reduce: str, include_self: bool, write: Any, source: Any) -> Tensor:
    """``write(to, values, combiner)`` at the same indices, as often as a reduction needs it."""
    dtype = x.dtype
    x = _accumulator(b, x, _COMBINERS[reduce])
    if not include_self:
        x = write(x, _neutral(x.dtype, _COMBINERS[reduce]), "set")
    total: Tensor = write(x, source, _COMBINERS[reduce])
    if reduce != "mean":
        return b.cast(total, dtype)
    m = b.body
    count: Tensor = write(b.full(x.sizes, x.dtype, int(include_self)), 1, "add")

    def code(one: Scalar, number: Scalar) -> Scalar:
        number = m.arithmetic("max", number, m.constant(1, number.dtype))
        return m.arithmetic("div" if is_float(x.dtype) else "floordiv", one, number)

    return b.pointwise(x.sizes, dtype, [total, count], code)


def _accumulator(b: Builder, x: Tensor, combiner: str) -> Tensor:
    """Half types are summed and multiplied in float32, and rounded once."""
    return b.cast(x, "f32") if x.dtype in HALF and combiner in ("add", "mul") else x


def _neutral(dtype: str, combiner: str) -> Any:
    return {"add": 0, "mul": 1}.get(combiner, lowest(dtype) if combiner == "max" else highest(dtype))


def _along(b: Builder, x: Tensor, dim: int, index: Tensor, value: Any, combiner: str) -> Tensor:
    """One index for each element of (the first part of) a source; other dims are indexed by the element's own
    position."""
    require_indices(index, bytes_too=True)
    _require_native(x, combiner)
    if of_another_rank(b, x, index):
        return x
    position = b.dim(dim, x.rank)
    coordinates = [(index, range(x.rank)) if i == position else i for i in range(x.rank)]
    if isinstance(value, Tensor) and value.rank:
        if value.rank != index.rank:
            raise Unsupported("a scatter from a tensor of another rank")
        written = value
    else:
        written = value if isinstance(value, Tensor) else b.full([], x.dtype, value)
    made = b.scatter(_accumulator(b, x, combiner), written, range(written.rank), index.sizes, coordinates, combiner)
    return b.cast(made, x.dtype)


def _require_native(x: Tensor, combiner: str) -> None:
    if x.dtype == "i1" and combiner != "set":
        raise Unsupported("sums of bool elements")


def _one_for_each_row(b: Builder, x: Tensor, dim: int, index: Tensor) -> bool:
    position = b.dim(dim, x.rank)
    if index.rank != x.rank or not b.is_one(index.sizes[position]):
        return False
    return all(b.facts.equal(i, s) for d, (i, s) in enumerate(zip(index.sizes, x.sizes)) if d != position)


def _by_position(b: Builder, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """One index per row, with a row for each of x's: a comparison with the position. In an empty row nothing is
    compared, and any index is out of bounds."""
    require_indices(index, bytes_too=True)
    position, m = b.dim(dim, x.rank), b.body
    message = f"index is out of bounds for dimension {position}"
    b.expect_at_most(product(index.sizes), product(x.sizes), message)

    def code(old: Scalar, index: Scalar, *new: Scalar) -> Scalar:
        at = m.op("arith.index_cast", "i64", m.check_index(index, x.sizes[position], message))
        written = new[0] if new else m.number(value, old.dtype)
        return m.select(m.compare("eq", m.dim_index(position), at), written, old)

    written = [_first_of(b, value, index)] if isinstance(value, Tensor) else []
    return b.pointwise(x.sizes, x.dtype, [x, index, *written], code)


def _first_of(b: Builder, source: Tensor, index: Tensor) -> Tensor:
    """The part of a scatter's source that the index covers; it may be larger."""
    if source.rank != index.rank:
        raise Unsupported("a scatter from a tensor of another rank")
    return b.view(source, index.sizes, lambda *d: list(d))


RULES: dict[str, Rule] = {
    "aten.scatter.value": without_dims(scatter),
    "aten.scatter.src": without_dims(scatter),
    "aten.scatter.reduce": without_dims(scatter),
    "aten.scatter.value_reduce": without_dims(scatter),
    "aten.scatter_add.default": without_dims(scatter_add),
    "aten.scatter_reduce.two": without_dims(scatter_reduce),
    "aten.index_reduce.default": without_dims(index_reduce),
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
}
