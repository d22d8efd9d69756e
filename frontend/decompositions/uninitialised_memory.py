"""Fills uninitialised memory under ``torch.use_deterministic_algorithms(True)``, as eager mode does.

The value is NaN or the largest integer (``torch.utils.deterministic.fill_uninitialized_memory``), so that reads are
reproducible. Frames have a guard on the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten: Any = torch.ops.aten

_EMPTY = (
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_permuted.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)


def with_filled_memory(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decomposition table with such fills while deterministic algorithms are on; else unchanged."""
    setting: Any = torch.utils.deterministic
    if not (torch.are_deterministic_algorithms_enabled() and setting.fill_uninitialized_memory):
        return table
    return {**table, **{op: _filled(op, table.get(op)) for op in _EMPTY}}


def _filled(op: Any, rule: Callable[..., Any] | None) -> Callable[..., Any]:
    inside = False

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return NotImplemented
        inside = True
        try:
            made = (rule or op)(*args, **kwargs)
            return made if made is NotImplemented else torch.fill(made, _value(made.dtype))
        finally:
            inside = False

    return decomposition


def _value(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max
