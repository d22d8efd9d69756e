"""Fields of tuples of a class that is derived from a named tuple, such as ``PackedSequence``."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes


def fields_are_items(changes: Changes) -> None:
    """Reads the fields from the traced items; a tuple that Dynamo has made itself has no fields."""
    from torch._dynamo.variables.user_defined import UserDefinedTupleVariable

    changes.wrap(UserDefinedTupleVariable, "resolve_data_descriptor", _from_items)


@functools.cache
def _from_items(original: Callable[..., Any]) -> Callable[..., Any]:
    getter: Any = vars(collections)["_tuplegetter"]

    @functools.wraps(original)
    def resolve(self: Any, tx: Any, name: str, type_attr: Any, source: Any) -> Any:
        if isinstance(type_attr, getter):
            _, (index, _) = type_attr.__reduce__()
            return self.items[index]
        return original(self, tx, name, type_attr, source)

    return resolve
