"""Rules of the ops that say where in a storage their elements are, whatever the tensor they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.host import CallOp
from symshape.dialects.sizes import Layout
from symshape.passes.lowering.aten.builder import ONE, ZERO, Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.scalar_body import Scalar
from symshape.passes.lowering.aten.views import regroup
from symshape.prover.numbers.expr import Expr, as_expr, maximum, minimum, product


def as_strided(b: Builder, x: Tensor, size: Any, stride: Sequence[Any], storage_offset: Any = None) -> Tensor:
    """Addresses of a row-major tensor are its elements in order, and an address is split into an index for each dim;
    of any other tensor, and where an address may be of no element, the storage is read, checked at call time."""
    layout, sizes = _layout(b, x), b.results[0].sizes
    first = layout.offset if storage_offset is None else as_expr(storage_offset)
    if _row_major(b, layout) and _within(b, layout, first, sizes, stride):
        whole = [product(x.sizes)]
        return b.view(x, sizes, lambda *d: regroup(b, x.sizes, whole, [_address(first - layout.offset, d, stride)]))
    storage = _storage(b, x, _end(first, sizes, stride))
    return b.view(storage, sizes, lambda *d: [_address(first, d, stride)])


def as_strided_scatter(
    b: Builder, x: Tensor, source: Tensor, size: Any, stride: Sequence[Any], storage_offset: Any = None
) -> Tensor:
    """A copy of the storage is written to, at the address of each element. The result is where ``x`` is in it: what is
    around it there may be read by address, too."""
    layout, m = _layout(b, x), b.body
    sizes = [as_expr(one) for one in size]
    if source.rank != len(sizes) or not all(b.facts.equal(*pair) for pair in zip(source.sizes, sizes)):
        raise Unsupported("a source that broadcasts")
    if any(step == 0 and not b.facts.nonnegative(1 - n) for n, step in zip(sizes, map(as_expr, stride))):
        raise Unsupported("elements that share memory")  # eager's error, where there are several
    first = layout.offset if storage_offset is None else as_expr(storage_offset)
    dense = layout.offset == ZERO and _row_major(b, layout) and _within(b, layout, first, sizes, stride)
    if dense:
        held = b.view(x, [product(x.sizes)], lambda *d: regroup(b, x.sizes, [product(x.sizes)], d))
    else:
        held = _storage(b, x, maximum(_end(first, sizes, stride), _end(layout.offset, x.sizes, layout.strides)))

    def address() -> Scalar:
        at = m.number(first, "i64")
        for i, step in enumerate(stride):
            at = m.add(at, m.mul(m.dim_index(i), m.number(step, "i64")))
        return at

    sizes = sizes or [ONE]  # a space has at least one dim
    dims = range(len(sizes))
    if not source.rank:
        source = b.pointwise(sizes, source.dtype, [source], lambda v: v)
    index = b.pointwise(sizes, "i64", [], address)
    written = b.scatter(held, source, dims, sizes, [(index, dims)], "set")
    if dense:
        return b.view(written, x.sizes, lambda *d: regroup(b, [product(x.sizes)], x.sizes, d))
    return b.view(written, x.sizes, lambda *d: [_address(layout.offset, d, layout.strides)])


def _layout(b: Builder, x: Tensor) -> Layout:
    layout = b.sizes.layouts.get(x.value)
    if layout is None:
        raise Unsupported("an operand whose strides are not known")
    return layout


def _row_major(b: Builder, layout: Layout) -> bool:
    steps = [product(layout.sizes[i + 1 :]) for i in range(len(layout.sizes))]
    return all(b.facts.equal(*pair) for pair in zip(layout.strides, steps))


def _within(b: Builder, layout: Layout, first: Expr, sizes: Sequence[Expr], stride: Sequence[Any]) -> bool:
    """Whether all addresses are known to be of elements of a row-major tensor."""
    after = layout.offset + product(layout.sizes)
    return b.facts.nonnegative(first - layout.offset) and b.facts.nonnegative(after - _end(first, sizes, stride))


def _address(first: Expr, indices: Sequence[Expr], stride: Sequence[Any]) -> Expr:
    address = first
    for index, step in zip(indices, stride):
        address = address + index * as_expr(step)
    return address


def _end(first: Expr, sizes: Sequence[Expr], stride: Sequence[Any]) -> Expr:
    """One more than the largest address; 0 if there is no element."""
    end = maximum(_address(first + 1, [size - 1 for size in sizes], stride), ZERO)
    return product([end, *(minimum(size, ONE) for size in sizes)])


def _storage(b: Builder, x: Tensor, size: Expr) -> Tensor:
    """The first elements of the memory that a tensor is in: no call, an alias of it."""
    type_ = b.type([size], x.dtype)
    value = CallOp("symshape.storage", "($0, $1)", [x.value, b.sizes.value(size)], [type_]).operation.results[0]
    ir.Operation.create("symshape.bind", [], [value, *(b.sizes.value(e) for e in (size, ONE, ZERO))])
    return Tensor(value, (size,), x.dtype)


RULES: dict[str, Callable[..., Any]] = {
    "aten.as_strided.default": as_strided,
    "aten.as_strided_scatter.default": as_strided_scatter,
}
