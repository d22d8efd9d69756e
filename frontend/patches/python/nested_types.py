"""``isinstance(x, (Number, (list, tuple)))``: a tuple of types may have tuples among its elements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.variables import BuiltinVariable, TupleVariable

from symshape.frontend.patches.patch import Changes


def nested_types_are_types(changes: Changes) -> None:
    """Asks for their elements, as Python does; Dynamo raises a TypeError in the program that it traces."""
    changes.wrap(BuiltinVariable, "call_function", _flattened)


@functools.cache
def _flattened(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn is not isinstance or len(args) != 2 or kwargs:
            return original(self, tx, args, kwargs)
        asked = args[1].realize()
        if not isinstance(asked, TupleVariable) or not any(isinstance(one, TupleVariable) for one in _realized(asked)):
            return original(self, tx, args, kwargs)
        return original(self, tx, [args[0], TupleVariable(list(_types(asked)))], kwargs)

    return call_function


def _realized(asked: Any) -> Iterator[Any]:
    return (one.realize() for one in asked.items)


def _types(asked: Any) -> Iterator[Any]:
    for one in _realized(asked):
        if isinstance(one, TupleVariable):
            yield from _types(one)
        else:
            yield one
