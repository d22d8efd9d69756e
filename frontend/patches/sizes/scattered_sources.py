"""Guards that the source of a scatter has the sizes of what it replaces.

The tracer's rules do not compare the two, or assume that they are equal.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import fake_impls

from symshape.frontend.bridge.fake_tensors import new_symbols_are_ignored, tracing_mode
from symshape.frontend.bridge.symbolic_sizes import either, holds_for_sizes, is_unbacked, known_equal
from symshape.frontend.bridge.tracing_errors import RefusedCall
from symshape.frontend.patches.operator_kernels import trace_sizes_by
from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten
Size = Any  # int | torch.SymInt


def sources_are_guarded(changes: Changes) -> None:
    """Adds the guards before any rule of the tracer runs: before its decomposition, or before its fake rule."""
    trace_sizes_by(changes, {op: functools.partial(_asked_by_decomposition, _ASKING[op]) for op in DECOMPOSED})
    rules: Any = fake_impls.op_implementations_dict
    changes.items(rules, {op: _asked_by_rule(ask, rules.get(op)) for op, ask in _ASKING.items()})


def scatters() -> list[Any]:
    """The operators whose sources are guarded."""
    return list(_ASKING)


def _asked_by_decomposition(ask: Callable[..., None], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def decomposition(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        ask(x, *args)
        return x.clone() if ask in _COPYING and _overlaps(x) else original(x, *args, **kwargs)

    return decomposition


def _asked_by_rule(ask: Callable[..., None], original: Callable[..., Any] | None) -> Callable[..., Any]:
    def rule(mode: Any, op: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        ask(x, *args)
        if ask in _COPYING:
            return x.clone() if _overlaps(x) else memory_like(x)
        return NotImplemented if original is None else original(mode, op, x, *args, **kwargs)

    return rule


def _overlaps(x: torch.Tensor) -> bool:
    """Whether elements share memory, so that the result cannot have these strides. Adds no guard."""
    return any(known_equal(stride, 0) and not known_equal(size, 1) for size, stride in zip(x.shape, x.stride()))


def memory_like(x: torch.Tensor) -> torch.Tensor:
    """A tensor at the offset of ``x`` in new memory of the size of its storage: eager mode copies the whole storage and
    writes to a part. The tracer's rule assumes that the storage ends with ``x``."""
    count = x.untyped_storage().nbytes() // x.element_size()
    return x.new_empty((count,)).as_strided(x.size(), x.stride(), x.storage_offset())


def _require_same(wanted: Sequence[Size], found: Sequence[Size]) -> None:
    if len(wanted) != len(found) or not all(holds_for_sizes(operator.eq, a, b) for a, b in zip(wanted, found)):
        raise RefusedCall(
            f"expected src to have a size equal to the slice of self. src size = {[*found]}, slice size = {[*wanted]}"
        )


def _ask_select(x: torch.Tensor, source: torch.Tensor, dim: int, index: Size) -> None:
    size = x.size(dim) if x.dim() else 1
    if not (holds_for_sizes(operator.lt, index, size) and holds_for_sizes(operator.ge, index, -size)):
        raise IndexError(f"select(): index {index} out of range for tensor of size {[*x.shape]} at dimension {dim}")
    _require_same([size for d, size in enumerate(x.shape) if d != dim % x.dim()], source.shape)


def _ask_diagonal(x: torch.Tensor, source: torch.Tensor, offset: Size = 0, dim1: int = 0, dim2: int = 1) -> None:
    _require_same(x.diagonal(offset, dim1, dim2).shape, source.shape)


def _ask_slice(x: torch.Tensor, source: torch.Tensor, *bounds: Any) -> None:
    if _has_unbacked((*x.shape, *bounds)):
        return  # the slice has an unbacked size
    with new_symbols_are_ignored(tracing_mode([x])):
        sizes = aten.slice.Tensor(x, *bounds).shape
    if not _has_unbacked(sizes):  # unbacked if it is not known whether a bound is within the dim
        _require_same(sizes, source.shape)


def _has_unbacked(values: Sequence[Any]) -> bool:
    return any(isinstance(one, torch.SymInt) and is_unbacked(one) for one in values)


def _ask_index(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *_: Any) -> None:
    if x.dim() != source.dim() or x.dim() == 0:
        return  # decided without sizes
    sizes = [index.numel() if d == dim % x.dim() else size for d, size in enumerate(x.shape)]
    if not all(holds_for_sizes(operator.eq, a, b) for a, b in zip(sizes, source.shape)):
        raise RefusedCall(
            "source tensor shape must match self tensor shape, excluding the specified dimension, where it is the "
            f"number of indices. self.shape = {[*x.shape]}, source.shape = {[*source.shape]}"
        )


def _ask_put(x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, *_: Any) -> None:
    """Guards the shape of values, in which a size of 1 is broadcast; decided at call time."""
    if any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices):
        return  # the number of values depends on a mask
    taken = aten.index.Tensor(x, indices).shape
    fits = values.dim() <= len(taken) and all(
        holds_for_sizes(_is_repeated, given, wanted) for given, wanted in zip(values.shape[::-1], taken[::-1])
    )
    if not fits:
        raise RefusedCall(
            f"shape mismatch: value tensor of shape {[*values.shape]} cannot be broadcast to indexing result of "
            f"shape {[*taken]}"
        )


def _is_repeated(given: Size, wanted: Size) -> Any:
    return either(given == 1, given == wanted)


_ASKING: Mapping[Any, Callable[..., None]] = {
    aten.select_scatter.default: _ask_select,
    aten.diagonal_scatter.default: _ask_diagonal,
    aten.slice_scatter.default: _ask_slice,
    **dict.fromkeys((aten.index_put.default, aten.index_put_.default), _ask_put),
    **dict.fromkeys((aten.index_copy.default, aten.index_copy_.default), _ask_index),
    **dict.fromkeys((aten.index_add.default, aten.index_add_.default), _ask_index),
    **dict.fromkeys((aten.index_reduce.default, aten.index_reduce_.default), _ask_index),
}

# Scatters into a copy of the first operand's storage.
_COPYING = (_ask_select, _ask_diagonal, _ask_slice)
COPYING: frozenset[Any] = frozenset(op for op, ask in _ASKING.items() if ask in _COPYING)

# Scatters for which the tracer has a decomposition.
DECOMPOSED = (
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
    aten.slice_scatter.default,
    aten.index_put_.default,
    aten.index_copy.default,
    aten.index_copy_.default,
    aten.index_add.default,
    aten.index_add_.default,
    aten.index_reduce_.default,
)
