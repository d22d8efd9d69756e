"""``in`` for a number and a list or tuple with symbolic numbers: ``3 in x.shape``, ``(3, 4) in [tuple(x.shape)]``.

Dynamo compares a constant with the constants of the list only, so the answer is False where a size has that value.
Python compares one element after another until one is equal; so does this, with a guard for each comparison.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes


def symbols_are_compared(changes: Changes) -> None:
    """In lists, tuples, sizes, and values of dictionaries."""
    from torch._dynamo import utils
    from torch._dynamo.variables import lists

    for owner in (utils, lists):
        changes.wrap(owner, "iter_contains", _asking_symbols)


@functools.cache
def _asking_symbols(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.variables.constant import ConstantVariable

    @functools.wraps(original)
    def iter_contains(items: Any, search: Any, tx: Any, *rest: Any, **options: Any) -> Any:
        found = [item.realize() for item in items]
        if not search.is_python_constant() or not any(_is_asked(item, search) for item in found):
            return original(found, search, tx, *rest, **options)
        return ConstantVariable.create(any(_is_equal(item, search, tx) for item in found))

    return iter_contains


def _is_asked(item: Any, search: Any) -> bool:
    """Whether an element is a symbol, or contains symbols, and may equal the searched value."""
    from torch._dynamo.variables.lists import BaseListVariable
    from torch._dynamo.variables.tensor import SymNodeVariable

    sought = search.as_python_constant()
    if isinstance(sought, (tuple, list)):
        return isinstance(item, BaseListVariable) and not item.is_python_constant()
    return isinstance(sought, (bool, int, float)) and isinstance(item, SymNodeVariable)


def _is_equal(item: Any, search: Any, tx: Any) -> bool:
    from torch._dynamo.variables.builder import SourcelessBuilder
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.tensor import SymNodeVariable

    if not _is_asked(item, search):
        # A tuple finds what is the same object too, NaN for one.
        return bool(item.is_python_constant() and item.as_python_constant() in (search.as_python_constant(),))
    sought = search.as_python_constant()
    number = ConstantVariable.create(int(sought)) if isinstance(sought, bool) else search  # no symbol equals a bool
    equal = SourcelessBuilder.create(tx, operator.eq).call_function(tx, [item, number], {})
    return bool(equal.evaluate_expr() if isinstance(equal, SymNodeVariable) else equal.as_python_constant())
