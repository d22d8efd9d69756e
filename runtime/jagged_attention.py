"""``symshape::jagged_attention``: attention within the rows of nested tensors.

Each row is one call of PyTorch's flash attention for CPUs, which reads the values in place, and short rows of equal
length share a call: there is no padding and no mask. Flash attention: Dao and others, https://arxiv.org/abs/2205.14135.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from symshape.errors import OffsetsError

Tensor = torch.Tensor
Where = slice | Tensor  # of the elements of one row, or of those of several (rows, length)
_SHORT = 16  # elements: of longer rows a call costs less than to copy them

_library: Any = torch.library.Library
_LIBRARY = _library("symshape", "FRAGMENT")
_LIBRARY.define(
    "jagged_attention(Tensor query, Tensor key, Tensor value, Tensor query_offsets, Tensor key_offsets, "
    "bool is_causal, float? scale) -> (Tensor, Tensor)"
)
_LIBRARY.define(
    "jagged_attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor result, "
    "Tensor logsumexp, Tensor query_offsets, Tensor key_offsets, bool is_causal, float? scale) "
    "-> (Tensor, Tensor, Tensor)"
)
_flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """``query``: (elements, heads, width); ``key`` and ``value``: (other elements, heads, width). Row ``i`` of the
    queries is ``query[query_offsets[i] : query_offsets[i + 1]]``, and attends to row ``i`` of the keys.

    Returns the result, as ``query``, and the logarithms of the softmax's sums (elements, heads), in float32 for half
    types. What no row has is 0, and so is the result where there is no key. ``scale``: 1 / sqrt(width) if None.
    OffsetsError for offsets that decrease or address no element.
    """
    result, sums = _empty(query, value)
    result.zero_()
    sums.fill_(-torch.inf)
    for queries, keys in _rows(query, key, query_offsets, key_offsets):
        q, k, v = _taken(query, queries), _taken(key, keys), _taken(value, keys)
        of_rows = _flash(q, k, v, 0.0, is_causal, scale=scale)
        _put(result, queries, of_rows[0])
        _put(sums, queries, of_rows[1])
    return result, sums


def attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    found = tuple(torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in (query, key, value))
    for queries, keys in _rows(query, key, query_offsets, key_offsets):
        of_rows = _flash_backward(
            _taken(gradient, queries),
            _taken(query, queries),
            _taken(key, keys),
            _taken(value, keys),
            _taken(result, queries),
            _taken(logsumexp, queries),
            0.0,
            is_causal,
            scale=scale,
        )
        for whole, where, part in zip(found, (queries, keys, keys), of_rows, strict=True):
            _put(whole, where, part)
    return found[0], found[1], found[2]


def _rows(query: Tensor, key: Tensor, query_offsets: Tensor, key_offsets: Tensor) -> Iterator[tuple[Where, Where]]:
    """The ranges of the queries and keys of rows that have both; offsets are read and checked before the first."""
    starts, ends = zip(*(_checked(offsets, t.shape[0]) for offsets, t in ((query_offsets, query), (key_offsets, key))))
    by_length: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for first, after, other, last in zip(starts[0], ends[0], starts[1], ends[1], strict=True):
        if after > first and last > other:
            by_length.setdefault((after - first, last - other), []).append((first, other))
    for lengths, rows in by_length.items():
        if len(rows) > 1 and max(lengths) <= _SHORT:
            yield tuple(_positions(firsts, length) for firsts, length in zip(zip(*rows), lengths))  # type: ignore[misc]
            continue
        for first, other in rows:
            yield slice(first, first + lengths[0]), slice(other, other + lengths[1])


def _positions(firsts: Sequence[int], length: int) -> Tensor:
    """(rows, length)"""
    return torch.tensor(firsts)[:, None] + torch.arange(length)


def _checked(offsets: Tensor, elements: int) -> tuple[list[int], list[int]]:
    """Starts and ends of rows; raises OffsetsError for invalid offsets."""
    found: list[int] = offsets.tolist()
    if any(b < a for a, b in zip(found, found[1:])) or (found and (found[0] < 0 or found[-1] > elements)):
        raise OffsetsError
    return found[:-1], found[1:]


def _taken(x: Tensor, where: Where) -> Tensor:
    """(rows, heads, length, ...), as the kernel takes it."""
    found = x[where]
    return (found[None] if isinstance(where, slice) else found).transpose(1, 2)


def _put(x: Tensor, where: Where, part: Tensor) -> None:
    """Stores the results of the kernel for these rows."""
    found = part.transpose(1, 2)
    x[where] = found[0] if isinstance(where, slice) else found


def _empty(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.float32 if query.dtype in (torch.float16, torch.bfloat16) else query.dtype
    result = query.new_empty((query.shape[0], query.shape[1], value.shape[2]))
    return result, query.new_empty((query.shape[0], query.shape[1]), dtype=wide)


def _fake(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _empty(query, value)


def _fake_backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return tuple(t.new_empty(t.shape) for t in (query, key, value))


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
    again = torch.ops.symshape.jagged_attention_backward
    return *again(gradient, *ctx.saved_tensors, ctx.is_causal, ctx.scale), None, None, None, None


_LIBRARY.impl("jagged_attention", attention, "CPU")
_LIBRARY.impl("jagged_attention_backward", attention_backward, "CPU")
torch.library.register_fake("symshape::jagged_attention", _fake, lib=_LIBRARY)
torch.library.register_fake("symshape::jagged_attention_backward", _fake_backward, lib=_LIBRARY)
torch.library.register_autograd("symshape::jagged_attention", _backward, setup_context=_remember, lib=_LIBRARY)
jagged_attention: Any = torch.ops.symshape.jagged_attention.default
