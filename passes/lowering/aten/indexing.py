"""Rules of gathers (``index``, ``gather``, ``embedding``): ``tensor.extract`` from the source, at checked indices.

The source is captured, not an operand of the loop: it must be in memory; the indices need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, wraps
from typing import Any, cast

from torch_mlir import ir

from symshape.passes.lowering.aten.builder import ONE, ZERO, Builder, Result, Tensor, Unsupported
from symshape.passes.lowering.aten.rule_combinators import Rule
from symshape.passes.lowering.aten.scalar_body import Scalar
from symshape.prover.numbers.expr import product

INTEGERS = ("i8", "i16", "i32", "i64")
IN_SELF = "index out of range in self"


def require_indices(*tensors: Tensor, bytes_too: bool = False) -> None:
    """Unsupported unless indices are signed integers; a bool or uint8 tensor is a mask, whose result has a
    data-dependent size.

    ``bytes_too``: for an operator that takes no masks, and an empty tensor of any dtype.
    """
    for x in tensors:
        if x.dtype not in INTEGERS and not (bytes_too and x.dtype == "ui8"):
            raise Unsupported(f"indices of dtype {x.dtype}")


def without_dims(rule: Rule) -> Rule:
    """The rule of an op whose first tensor or whose index may have no dim, which is then one of one element."""

    @wraps(rule)
    def lowered(b: Builder, x: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if x.rank and index.rank:
            return cast(Tensor, rule(b, x, dim, index, *args, **kwargs))
        results = b.results
        b.results = [Result(one.sizes or (ONE,), one.dtype) for one in results]
        x, index, *more = (_with_a_dim(b, one) for one in (x, index, *args))
        made = rule(b, x, dim, index, *more, **kwargs)
        return cast(Tensor, made if results[0].sizes else b.view(made, (), lambda: [ZERO]))

    return lowered


def _with_a_dim(b: Builder, value: Any) -> Any:
    """A view, with a bind, since a source that is read by index must be in memory."""
    if not isinstance(value, Tensor) or value.rank:
        return value
    view = b.view(value, (ONE,), lambda d: [])
    layout = [b.sizes.value(size) for size in (ONE, ONE, b.sizes.layouts[value.value].offset)]
    ir.Operation.create("symshape.bind", [], [view.value, *layout])
    return view


def of_another_rank(b: Builder, x: Tensor, index: Tensor) -> bool:
    """Whether the index and the indexed tensor differ in rank. Eager mode allows that if the index is empty: then
    nothing is read or written."""
    if index.rank == x.rank:
        return False
    if not b.facts.equal(product(index.sizes), ZERO):
        raise Unsupported("an index of another rank")
    return True


def placed(b: Builder, index: Tensor, start: int) -> Tensor:
    """An index tensor over the result's points, its dims at result dims start, start + 1, ..., with broadcasting."""
    sizes = b.results[0].sizes
    repeated = [b.is_one(s) and not b.is_one(sizes[start + i]) for i, s in enumerate(index.sizes)]
    if index.rank == len(sizes) and not any(repeated):
        return index
    return b.view(index, sizes, lambda *d: [ZERO if one else d[start + i] for i, one in enumerate(repeated)])


def embedding(b: Builder, weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    """weight[indices]: padding and scaling only matter to the gradient."""
    require_indices(indices)
    m, result = b.body, b.results[0]

    def code(index: Scalar) -> Scalar:
        row = m.check_index(index, weight.sizes[0], IN_SELF)
        return m.extract(weight.value, [row, m.position(indices.rank)], weight.dtype)

    return b.pointwise(result.sizes, result.dtype, [placed(b, indices, 0)], code)


def index_select(b: Builder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    require_indices(index)
    m, result, position = b.body, b.results[0], b.dim(dim, x.rank)

    def code(value: Scalar) -> Scalar:
        at = m.check_index(value, x.sizes[position], IN_SELF)
        return m.extract(x.value, [at if i == position else m.position(i) for i in range(x.rank)], x.dtype)

    return b.pointwise(result.sizes, result.dtype, [placed(b, index, position)], code)


def gather(b: Builder, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    require_indices(index, bytes_too=True)
    if of_another_rank(b, x, index):
        return b.full(index.sizes, x.dtype, 0)
    m, position = b.body, b.dim(dim, x.rank)

    def code(value: Scalar) -> Scalar:
        at = m.check_index(value, x.sizes[position], f"index is out of bounds for dimension {position}")
        return m.extract(x.value, [at if i == position else m.position(i) for i in range(x.rank)], x.dtype)

    return b.pointwise(b.results[0].sizes, x.dtype, [index], code)


def take(b: Builder, x: Tensor, index: Tensor) -> Tensor:
    """Row-major positions, split into an index for each dim."""
    require_indices(index)
    m = b.body

    def code(value: Scalar) -> Scalar:
        count = product(x.sizes)
        at = m.check_index(
            m.wrapped(value, count), count, "out of range: tried to access an index outside of the tensor"
        )
        rest, indices = m.op("arith.index_cast", "i64", at), []
        for i, size in enumerate(x.sizes):
            inner = m.size(product(x.sizes[i + 1 :]))
            part = m.arithmetic("floordiv", rest, inner)
            part = m.arithmetic("rem", part, m.size(size)) if i else part
            indices.append(m.op("arith.index_cast", "index", part))
        return m.extract(x.value, indices, x.dtype)

    return b.pointwise(index.sizes, x.dtype, [index], code)


def index_tensor(b: Builder, x: Tensor, indices: Sequence[Tensor | None], *, checked: bool = True) -> Tensor:
    """NumPy's advanced indexing: the indices broadcast together; their dims stand where the first index was if all are
    next to each other, else in front. ``checked``: an index out of range is an error."""
    at = {i: index for i, index in enumerate(indices) if index is not None}
    require_indices(*at.values())
    positions = sorted(at)
    rank = max((index.rank for index in at.values()), default=0)
    adjacent = positions == list(range(positions[0], positions[0] + len(positions)))
    start = positions[0] if adjacent else 0
    kept = [i for i in range(x.rank) if i not in at]
    if len(kept) + rank != len(b.results[0].sizes):
        raise Unsupported("the traced result has another rank")  # zero-dim indices: PyTorch's meta function drops dims
    others = [d for d in range(len(b.results[0].sizes)) if not start <= d < start + rank]
    result_dim = dict(zip(kept, others))
    inputs = [placed(b, index, start + rank - index.rank) for index in at.values()]
    m = b.body

    def code(*values: Scalar) -> Scalar:
        read: dict[int, Scalar] = {}
        for i, value in zip(at, values):
            message, index = f"index is out of bounds for dimension {i}", m.wrapped(value, x.sizes[i])
            read[i] = m.check_index(index, x.sizes[i], message) if checked else m.clamped_index(index, x.sizes[i])
        return m.extract(x.value, [read[i] if i in read else m.position(result_dim[i]) for i in range(x.rank)], x.dtype)

    return b.pointwise(b.results[0].sizes, x.dtype, inputs, code)


RULES: dict[str, Rule] = {
    "aten.embedding.default": embedding,
    "aten.index_select.default": without_dims(index_select),
    "aten.gather.default": without_dims(gather),
    "aten.take.default": take,
    "aten.index.Tensor": index_tensor,
    "aten._unsafe_index.Tensor": partial(index_tensor, checked=False),
}
