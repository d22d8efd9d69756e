"""Finds sizes that a function traced without Dynamo has stored outside of itself.

They are symbols of the trace, and the code that stores them runs in the trace only. The search visits the same objects
as the search for modules: from the function, its names, containers and attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from symshape.errors import CompileError
from symshape.jitted.module_state import DEPTH, TRANSPARENT, is_foreign, parts, value_at

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def reject_leaked_sizes(fn: Any, holder: torch.nn.Module) -> None:
    """CompileError for a size of the trace that something refers to which the function finds again."""
    for owner, key, value in _values(fn, holder):
        one = value[0] if type(value) is torch.Size and value else value
        if isinstance(one, _SYMBOLS):
            where = f"as {key} of {owner}" if isinstance(key, str) else f"in a {owner}"
            raise CompileError(
                f"a size, or what is computed of one, is stored outside of the function, {where}: "
                "later calls would store nothing",
                next_step="return it, or use symshape.compile",
            )


def _values(fn: Any, holder: torch.nn.Module) -> Iterator[tuple[str, Any, Any]]:
    """All values that are found, with the name of their holder, and their key in it."""
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(fn, DEPTH), *((module, DEPTH) for module in holder.modules())]
    while waiting:
        item, depth = waiting.pop(0)
        if id(item) in seen or depth < 0:
            continue
        seen.add(id(item))
        below = depth if isinstance(item, TRANSPARENT) else depth - 1
        for key, value in _items(item):
            yield type(item).__name__ if not isinstance(item, type) else item.__name__, key, value
            waiting.append((value, below))


def _items(item: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(item, torch.nn.Module) or isinstance(item, type) and not is_foreign(item.__module__):
        attributes: Mapping[str, Any] = vars(item)
        yield from attributes.items()
    else:
        yield from ((key, value_at((table, key))) for table, key in parts(item))
