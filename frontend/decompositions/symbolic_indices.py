"""``x[:, n - 1]`` and ``x[i, 1:] = y``: C++ makes numbers of the integers in a tuple of indices, a graph for each.

Those that are in the data (``x[:, i.item()]``) it refuses. Here they are selected by a function that takes sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.fake_tensors import is_batched


def getitem(x: torch.Tensor, key: Any) -> torch.Tensor:
    """``x[key]``."""
    view, rest = selected(x, key)
    return view[rest] if rest else view


def setitem(x: torch.Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    view, rest = selected(x, key)
    view[rest or ...] = value


def selected(x: torch.Tensor, key: Any) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """A view of x by the symbolic integers of an index, and the rest of the index. Integers are selected before tensors
    are looked at, as eager mode does."""
    given = key if isinstance(key, tuple) else (key,)
    items = [item.item() if _is_number(item) else item for item in given]
    dims = selections(x.dim(), items)
    for position, dim in dims.items():
        x = x.select(dim, items[position])
    return x, tuple(item for position, item in enumerate(items) if position not in dims)


def selections(rank: int, items: Sequence[Any]) -> dict[int, int]:
    """The positions of the symbolic integers in an index, in order, and which dim each is selected from: those of the
    ones before it are gone by then."""
    taken, dim, found = sum(_dims_of(item) for item in items), 0, {}
    for position, item in enumerate(items):
        if isinstance(item, torch.SymInt):
            found[position] = dim
        else:
            dim += rank - taken if item is Ellipsis else _dims_of(item)
    return found


def _is_number(item: Any) -> bool:
    """Whether one part of an index is a tensor that selects as an integer does: a view."""
    if not isinstance(item, torch.Tensor) or item.dim() or is_batched(item):
        return False
    return item.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)


def _dims_of(item: Any) -> int:
    """How many dims one part of an index is for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    is_mask = isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8)
    return item.dim() if is_mask else 1


def is_read(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """The same, or a tensor in the place of such an integer, which C++ reads."""
    key = args[1] if len(args) > 1 else ()
    return is_symbolic(args, kwargs) or any(map(_is_number, key if isinstance(key, tuple) else (key,)))


def is_symbolic(args: Sequence[Any], _: Mapping[str, Any]) -> bool:
    """Whether an index has an integer that is a symbol, and no list of others in it."""
    key = args[1] if len(args) > 1 else ()
    items = key if isinstance(key, tuple) else (key,)
    return any(isinstance(item, torch.SymInt) for item in items) and not any(isinstance(i, list) for i in items)
