"""Attention of nested tensors on CPUs as one operator; PyTorch's reads all lengths and creates a tensor per row."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nested._internal import ops, sdpa
from torch.nested._internal.nested_tensor import NestedTensor, nested_view_from_values_offsets_lengths

from symshape.frontend.patches.patch import Changes
from symshape.runtime.jagged_attention import jagged_attention

Tensor = torch.Tensor


def nested_attention_is_one_operator(changes: Changes) -> None:
    """Traces ``scaled_dot_product_attention`` of nested tensors on CPUs as ``symshape::jagged_attention`` of their
    values. Masks, dropout, grouped heads, and rows with gaps are left to PyTorch, whose only CPU implementation reads
    the lengths."""
    changes.wrap(ops, "jagged_scaled_dot_product_attention", _of_values)


def _of_values(original: Any) -> Any:
    @functools.wraps(original)
    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        given = sdpa._autocast(query, key, value, attn_mask)
        plain = attn_mask is None and dropout_p == 0.0 and not enable_gqa
        if not plain or not all(_is_ragged_by_position(t) for t in given[:3]) or not _same_heads(*given[:3]):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        sdpa._validate_sdpa_input(*given, dropout_p, is_causal, scale)
        query, key, value = (t.transpose(1, 2) for t in given[:3])
        result, _ = jagged_attention(
            *(t.values() for t in (query, key, value)), query.offsets(), key.offsets(), is_causal, scale
        )
        return nested_view_from_values_offsets_lengths(
            result,
            query.offsets(),
            None,
            min_seqlen=query._maybe_min_seqlen,
            max_seqlen=query._maybe_max_seqlen,
        ).transpose(1, 2)

    return attention


def _is_ragged_by_position(x: Any) -> bool:
    """Whether a tensor has shape (rows, heads, ragged, width), is on a CPU, and has no gaps between rows."""
    nested = isinstance(x, NestedTensor) and x.dim() == 4 and x._ragged_idx == 2
    return nested and x.device.type == "cpu" and x.lengths() is None and x.dtype.is_floating_point


def _same_heads(query: Any, key: Any, value: Any) -> bool:
    heads = query.size(1) == key.size(1) and key.size(1) == value.size(1)
    return heads and query.size(3) == key.size(3) and key.size(3) == value.size(3)
