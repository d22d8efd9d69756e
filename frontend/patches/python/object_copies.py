"""``copy.copy`` and ``copy.deepcopy`` of objects whose class defines how it is copied.

Dynamo traces a form of ``object.__reduce_ex__`` that copies the attributes of an object only: a copy of an
``OrderedDict``, of a subclass of ``list`` or ``int``, or of an object with ``__getstate__`` would be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.patches.patch import Changes

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that Python code has made
_OWN_WAYS = ("__reduce_ex__", "__reduce__", "__getstate__")


def custom_copies_break_the_graph(changes: Changes) -> None:
    """There Python copies."""
    from torch._dynamo.variables.functions import UserMethodVariable

    changes.wrap(UserMethodVariable, "call_function", _of_plain_objects)


@functools.cache
def _of_plain_objects(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.polyfills import copy

    replacement: Any = copy.reduce_ex_user_defined_object
    attributes_only = replacement.__torch_dynamo_polyfill__

    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn is attributes_only and not _is_plain(kind := self.obj.python_type()):
            unimplemented(f"a copy of an object of {kind.__name__}", "its class defines how it is copied", None)
        return original(self, tx, args, kwargs)

    return call_function


def _is_plain(kind: type) -> bool:
    """Whether the attributes of an object are all that it has."""
    if not all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__):
        return False
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in _OWN_WAYS):
        return False
    named = any(hasattr(kind, name) for name in ("__getnewargs__", "__getnewargs_ex__"))
    return not named and not any(vars(base).get("__slots__") for base in kind.__mro__)
