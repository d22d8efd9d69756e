"""Copies results into eager mode's memory layout, where a decomposition or fake rule of PyTorch's has another.

A kernel that computes such a result stores it there directly.

Found by tracing every operator of PyTorch's database with its operands contiguous, permuted, channels-last and strided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.layouts import memory_format_of
from symshape.frontend.bridge.symbolic_sizes import (
    guard_or_false,
    has_unbacked_sizes,
    holds_here,
    known_equal,
    known_multiple,
)

aten: Any = torch.ops.aten
Size = Any  # int | torch.SymInt
Order = Sequence[int]  # the dims of a result, from the one that is outermost in memory to the innermost


def as_eager(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """The decomposition table, with results laid out as in eager mode. Operators that it leaves whole stay so."""
    layouts = {
        **dict.fromkeys(_CONTIGUOUS, _contiguous),
        **dict.fromkeys(_BY_OPERANDS, _by_operands),
        **dict.fromkeys(_BY_FORMAT, _by_format),
        **dict.fromkeys(_BY_CONTIGUITY, _by_contiguity),
        aten.put.default: _by_first,
        aten.index.Tensor: _by_index,
        aten.cat.default: _by_formats,
        aten.roll.default: _by_shifts,
        aten.angle.default: _by_type,
    }
    return {**table, **{op: _laid_out(op, table.get(op), layout) for op, layout in layouts.items()}}


_CONTIGUOUS = (
    aten.log_sigmoid_forward.default,
    aten.adaptive_max_pool3d.default,
    aten.nll_loss2d_forward.default,
    aten.take.default,
)
_BY_OPERANDS = (
    aten.fmax.default,
    aten.fmin.default,
    aten.heaviside.default,
    aten.lerp.Tensor,
    aten.logaddexp.default,
    aten.xlogy.Tensor,
    aten.special_xlog1py.default,
    aten.floor_divide.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.copysign.Tensor,
    aten.div.Tensor_mode,
)
_BY_CONTIGUITY = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
)
_BY_FORMAT = (
    aten.channel_shuffle.default,
    aten.max_unpool2d.default,
)


def _laid_out(op: Any, rule: Callable[..., Any] | None, layout: Callable[..., Order]) -> Callable[..., Any]:
    """The decomposition with its results laid out; without one, the operator itself is called once more."""
    inside = False

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return NotImplemented
        inside = rule is None
        try:
            results = (rule or op)(*args, **kwargs)
        finally:
            inside = False
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if results is NotImplemented or any(map(has_unbacked_sizes, tensors)):
            return results
        if layout is not _by_operands and not all(x.is_cpu for x in tensors):
            return results  # what other devices do was not looked at
        found = pytree.tree_map_only(torch.Tensor, lambda x: relaid(x, layout(x, *args)), results)
        if layout is _by_formats:  # of one tensor it is a clone, which keeps the strides of dims of size 1
            return restrided(found, layout(found, *args))
        return pytree.tree_map_only(torch.Tensor, restrided, found) if layout is _by_contiguity else found

    return decomposition


def relaid(x: torch.Tensor, order: Order) -> torch.Tensor:
    """The tensor, copied if it is not known to be dense with its dims in this order."""
    if has_unbacked_sizes(x) or _is_known_dense(x, order):
        return x
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.permute(*order).contiguous().permute(*back)


def restrided(x: torch.Tensor, order: Order = ()) -> torch.Tensor:
    """A tensor that is known to be dense with its dims in this order (contiguous), with the strides of a new one in its
    dims of size 1 too. They decide the layout of what is made of it: 1 x 1 images have channels-last strides as well,
    or do not; one row of a cache says in which order further rows are stored."""
    order = order or range(x.dim())
    if not _is_known_dense(x, order) or all(known_equal(x.stride(d), stride) for d, stride in _dense(x.shape, order)):
        return x
    dense = x.permute(*order)
    return dense.reshape(-1).view(dense.shape).permute(*sorted(range(x.dim()), key=order.__getitem__))


def is_known_contiguous(x: torch.Tensor) -> bool:
    """Whether the tensor is contiguous whatever its sizes are."""
    return _is_known_dense(x, range(x.dim()))


def _is_known_dense(x: torch.Tensor, order: Order) -> bool:
    return all(known_equal(x.size(d), 1) or known_equal(x.stride(d), stride) for d, stride in _dense(x.shape, order))


def _dense(sizes: Sequence[Size], order: Order) -> list[tuple[int, Size]]:
    """Every dim with its stride."""
    found, stride = [], 1
    for d in reversed(order):
        found.append((d, stride))
        stride = stride * sizes[d]
    return found


def _contiguous(x: torch.Tensor, *_: Any) -> Order:
    return range(x.dim())


def order_of_format(x: torch.Tensor) -> Order:
    """The order of dims of a result in ``x.suggest_memory_format()``."""
    return _by_formats(x, [x])


def order_of_clone(x: torch.Tensor, single: Sequence[int] = ()) -> Order:
    """The order of dims of ``x.clone()``, or of a pointwise result with the dims in ``single`` broadcast."""
    return _by_strides(x.shape, [[0 if d in single else stride for d, stride in enumerate(x.stride())]])


def _by_format(x: torch.Tensor, *operand: Any) -> Order:
    return _by_formats(x, operand[:1])


def _by_formats(x: torch.Tensor, operands: Sequence[torch.Tensor], *_: Any) -> Order:
    """Channels-last where all operands are that."""
    last = all(memory_format_of(o) in (torch.channels_last, torch.channels_last_3d) for o in operands)
    return [0, *range(2, x.dim()), 1] if last and x.dim() >= 4 else range(x.dim())


def _by_contiguity(x: torch.Tensor, operand: torch.Tensor, *_: Any) -> Order:
    """As the operand's format, but contiguous where the operand is that as well (1 x 1 images, one channel)."""
    return range(x.dim()) if is_known_contiguous(operand) else _by_format(x, operand)


def _by_shifts(x: torch.Tensor, operand: torch.Tensor, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Order:
    """Two pieces are joined for each dim: by the operand's format, unless a piece has no elements. Of a tensor without
    elements any layout is right."""
    order = list(order_of_format(operand))
    if order == list(range(x.dim())) or not dims:
        return range(x.dim())
    sizes = (torch.sym_max(x.size(d), 1) for d in dims)  # type: ignore[no-untyped-call]
    return order if all(holds_here(n % size != 0) for n, size in zip(shifts, sizes)) else range(x.dim())


def empty_rolled(x: torch.Tensor, shifts: Sequence[Size], dims: Sequence[int]) -> torch.Tensor:
    """An empty tensor with the layout of ``x.roll(shifts, dims)``."""
    order = _by_shifts(x, x, shifts, dims) if x.is_cpu and not has_unbacked_sizes(x) else range(x.dim())
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.new_empty([x.size(d) for d in order]).permute(*back)


def _by_first(x: torch.Tensor, operand: torch.Tensor, *_: Any) -> Order:
    return _by_strides(x.shape, [operand.stride()])


def _by_type(x: torch.Tensor, operand: torch.Tensor) -> Order:
    """Contiguous for complex numbers."""
    return range(x.dim()) if operand.is_complex() else _by_operands(x, operand)


def _by_operands(x: torch.Tensor, *operands: Any) -> Order:
    return _by_strides(x.shape, [_repeated(o, x.shape) for o in operands if isinstance(o, torch.Tensor)])


def _by_index(x: torch.Tensor, operand: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Order:
    """First the dims of the operand that are kept, then the indices' dims, which are where the first indexed dim is, or
    in front if the indexed dims are not adjacent."""
    indexed = [d for d, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not given or any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return range(x.dim())
    rank = max(index.dim() for index in given)
    start = indexed[0] if indexed[-1] - indexed[0] == len(indexed) - 1 else 0
    kept = [stride for d, stride in enumerate(operand.stride()) if d not in indexed]
    chosen = x.shape[start : start + rank]
    rows = [[0] * start + _repeated(index, chosen) + [0] * (x.dim() - start - rank) for index in given]
    return _by_strides(x.shape, [kept[:start] + [0] * rank + kept[start:], *rows])


def _repeated(x: torch.Tensor, sizes: Sequence[Size]) -> list[Size]:
    """The strides of ``x.expand(sizes)``."""
    lead = len(sizes) - x.dim()
    once = [known_equal(x.size(d), 1) and not known_equal(sizes[lead + d], 1) for d in range(x.dim())]
    return [0] * lead + [0 if alone else stride for alone, stride in zip(once, x.stride())]


def _by_strides(sizes: Sequence[Size], operands: Sequence[Sequence[Size]]) -> Order:
    """The order of dims that PyTorch's iterator over operands with these strides chooses. The first operand that is
    repeated in neither of two dims decides which of them is inner."""

    def compare(a: int, b: int) -> int:
        for strides in operands:
            if known_equal(strides[a], 0) or known_equal(strides[b], 0):
                continue
            if not known_equal(strides[a], strides[b]):
                return 1 if _is_outer(strides[a], strides[b]) else -1
            if guard_or_false(sizes[a] > sizes[b]):
                return 1
        return 0

    inner_first = list(reversed(range(len(sizes))))
    for i in range(1, len(sizes)):  # as dims may be in no order, the order depends on which are compared
        position = i
        for other in reversed(range(i)):
            outcome = compare(inner_first[other], inner_first[position])
            if outcome < 0:
                break
            if outcome > 0:
                inner_first[other], inner_first[position] = inner_first[position], inner_first[other]
                position = other
    return inner_first[::-1]


def _is_outer(stride: Size, other: Size) -> bool:
    """Whether a stride is the larger one. A multiple is, or one of the dims has no more than one element: no guard."""
    if known_multiple(stride, other):
        return True
    return not known_multiple(other, stride) and guard_or_false(stride > other)
