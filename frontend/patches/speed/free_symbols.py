"""Remembers which symbols a sympy expression has.

``Basic.free_symbols`` visits the whole expression each time it is asked. PyTorch asks it of each size of each operand
of each operator, and sympy of every expression whose sign it derives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from sympy.core.basic import Basic

from symshape.frontend.patches.patch import Changes

_MOST: Final = 1 << 14  # expressions; those of a trace are some thousand


def remember_free_symbols(changes: Changes) -> None:
    """Makes expressions look up their symbols. Classes with bound variables define ``free_symbols`` themselves, and
    keep it."""
    changes.attribute(Basic, "free_symbols", _remembered(vars(Basic)["free_symbols"].fget))


@functools.cache
def _remembered(original: Callable[[Any], set[Any]]) -> property:
    found = functools.lru_cache(_MOST)(lambda expr: frozenset(original(expr)))

    def free_symbols(self: Any) -> set[Any]:
        """A set of its own for each caller, as sympy's."""
        return set(found(self))

    return property(free_symbols)
