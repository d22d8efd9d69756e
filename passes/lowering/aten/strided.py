"""Rules of ``as_strided`` and other operators that read a storage by address, whatever view of it they get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import call_arguments, call_target
from symshape.dialects.host import CallOp
from symshape.dialects.sizes import Layout
from symshape.dialects.template import instantiate
from symshape.passes.lowering.aten.builder import ONE, ZERO, Addresses, Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.scalar_body import Scalar
from symshape.passes.lowering.aten.views import ALIASING, regroup
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
    """Writes to a copy of the storage, at the address of each element. The result is at the place of ``x`` in it:
    memory around it may be read by address, too."""
    layout, m = _layout(b, x), b.body
    sizes = [as_expr(one) for one in size]
    if source.rank != len(sizes) or not all(b.facts.equal(*pair) for pair in zip(source.sizes, sizes)):
        raise Unsupported("a source that broadcasts")
    if any(step == 0 and not b.facts.nonnegative(1 - n) for n, step in zip(sizes, map(as_expr, stride))):
        raise Unsupported("elements that share memory")  # eager's error, where there are several
    first = layout.offset if storage_offset is None else as_expr(storage_offset)
    require_memory(b, x)
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


def require_memory(b: Builder, x: Tensor) -> None:
    """Unsupported where the result of a write into a copy of the memory that ``x`` is in may be read, by address,
    outside of ``x``, and where elements of ``x`` may share memory (``unfold``), so that a write changes several. The
    library call copies all of the memory, whose size is known at call time."""
    layout = _layout(b, x)
    if not _are_apart(b, layout):
        raise Unsupported("elements that share memory")
    if not b.addresses or is_own_memory(b, x):
        return
    if not _row_major(b, layout) or not all(one is not None and _within(b, layout, *one) for one in b.addresses):
        raise Unsupported("memory around its operand may be read by address")


def addresses_read(b: Builder, x: ir.Value) -> list[Addresses | None]:
    """The addresses at which the storage of a value is read; None for unknown ones."""
    found: list[Addresses | None] = []
    for use in x.uses:
        op = use.owner.operation
        target = call_target(op) if op.name == "host.call" and use.operand_number == 0 else ""
        if target in READING:
            found.append(_addresses(b, op, target))
        if op.name == "symshape.view" or target in ALIASING or target in COPYING:
            found += [one for result in op.results for one in addresses_read(b, result)]
    return found


def _addresses(b: Builder, op: Any, target: str) -> Addresses | None:
    layout = b.sizes.layouts.get(op.operands[0])
    if layout is None or target == "symshape.storage":
        return None
    tensors = [isinstance(value.type, ir.RankedTensorType) for value in op.operands]
    if not all(is_tensor or value in b.sizes for value, is_tensor in zip(op.operands, tensors)):
        return None
    operands = [None if is_tensor else b.sizes.expr(value) for value, is_tensor in zip(op.operands, tensors)]
    (_, *arguments), _ = instantiate(call_arguments(op), operands)
    size, stride, *offset = arguments[1:] if target in COPYING else arguments
    first = layout.offset if not offset or offset[0] is None else as_expr(offset[0])
    return first, [as_expr(one) for one in size], stride


def is_own_memory(b: Builder, x: Tensor) -> bool:
    """Whether a tensor has all elements of its memory."""
    root = x.value
    while not isinstance(root.owner, ir.Block) and _is_alias(root.owner):
        root = root.owner.operands[0]
    layout = None if isinstance(root.owner, ir.Block) else b.sizes.layouts.get(root)
    if layout is None or layout.offset != ZERO or (root.owner.name == "host.call" and not _is_fresh(root.owner)):
        return False
    return b.facts.equal(product(layout.sizes), product(x.sizes))


def _is_alias(op: Any) -> bool:
    return op.name == "symshape.view" or (op.name == "host.call" and call_target(op) in ALIASING)


def _is_fresh(op: Any) -> bool:
    """Whether a library call's result is in a memory of its own size."""
    target = call_target(op)
    return target.startswith("aten.") and target not in COPYING and target not in ALIASING


def _layout(b: Builder, x: Tensor) -> Layout:
    layout = b.sizes.layouts.get(x.value)
    if layout is None:
        raise Unsupported("an operand whose strides are unknown")
    return layout


def _row_major(b: Builder, layout: Layout) -> bool:
    steps = [product(layout.sizes[i + 1 :]) for i in range(len(layout.sizes))]
    return all(b.facts.equal(*pair) for pair in zip(layout.strides, steps))


def _are_apart(b: Builder, layout: Layout) -> bool:
    """Whether elements are known to be at different addresses, or eager mode's copy has them apart (strides of 0). In
    some order of the dims, a step along each is then larger than all steps along those after it together."""
    if ZERO in layout.strides:
        return True
    rest = dict(enumerate(zip(layout.sizes, layout.strides)))
    while rest:
        extent = as_expr(sum((size - 1) * stride for size, stride in rest.values()))
        outermost = next(
            (d for d, (n, step) in rest.items() if b.facts.less_equal(extent - (n - 1) * step, step - 1)), -1
        )
        if outermost < 0:
            return False
        del rest[outermost]
    return True


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
    """The largest address plus one; 0 if there is no element."""
    end = maximum(_address(first + 1, [size - 1 for size in sizes], stride), ZERO)
    return product([end, *(minimum(size, ONE) for size in sizes)])


def _storage(b: Builder, x: Tensor, size: Expr) -> Tensor:
    """The first elements of the memory that a tensor is in: no call, an alias of it."""
    type_ = b.type([size], x.dtype)
    value = CallOp("symshape.storage", "($0, $1)", [x.value, b.sizes.value(size)], [type_]).operation.results[0]
    ir.Operation.create("symshape.bind", [], [value, *(b.sizes.value(e) for e in (size, ONE, ZERO))])
    return Tensor(value, (size,), x.dtype)


# Results of these are where their first operand is, in a copy of the memory that it is in.
COPYING = frozenset(
    {
        "aten.as_strided_scatter.default",
        "aten.slice_scatter.default",
        "aten.select_scatter.default",
        "aten.diagonal_scatter.default",
    }
)
# These read the memory of their first operand, wherever that is.
READING = frozenset({"aten.as_strided.default", "aten.as_strided_scatter.default", "symshape.storage"})

RULES: dict[str, Callable[..., Any]] = {
    "aten.as_strided.default": as_strided,
    "aten.as_strided_scatter.default": as_strided_scatter,
}
