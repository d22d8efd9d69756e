"""Random generators in a function that is traced without Dynamo (`symshape.jit`).

A random draw is an operator, which draws at each call. Methods of a generator are not operators: they would run once,
during the trace, and so would creating one. In the tracing thread both raise CompileError at the user's line.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from symshape.errors import CompileError, with_text
from symshape.frontend.bridge.source_lines import is_users, user_line_now
from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Named

_Generator: Any = torch.Generator
_METHODS = tuple(
    name for name, value in vars(_Generator).items() if callable(value) and not name.startswith("_")
)  # all public methods: each reads or writes the generator's state


def generators_are_not_asked(changes: Changes) -> None:
    """Makes ``g.manual_seed``, ``torch.get_rng_state`` and similar calls raise CompileError, for all generators."""
    table = _method_table()
    changes.callback(_forget_lookups)
    changes.items(table, {name: _refusing(name, table[name]) for name in _METHODS})
    _forget_lookups()


def generators_are_not_made(changes: Changes) -> None:
    """Makes ``torch.Generator()`` raise CompileError; ``isinstance`` with the class still works."""
    changes.wrap(torch, "Generator", _class_of_generators)


def method_targets() -> list[Named]:
    """The methods that ``generators_are_not_asked`` replaces."""
    return [Named(f"torch.Generator.{name}", functools.partial(vars(_Generator).get, name)) for name in _METHODS]


def methods_can_be_replaced() -> str:
    """A probe: CPython must keep a dict behind ``vars`` of the C++ class. Returns what is wrong, or ""."""
    found = gc.get_referents(vars(torch.Generator))
    return "" if [type(one) for one in found] == [dict] else "there is no dict behind vars(torch.Generator)"


def _method_table() -> dict[str, Any]:
    """The dict with the methods of ``torch.Generator``. CPython rejects ``setattr`` on a C++ class, so the dict itself
    is changed."""
    (table,) = gc.get_referents(vars(_Generator))
    return table  # type: ignore[no-any-return]


def _forget_lookups() -> None:
    """Invalidates CPython's cache of attribute lookups on the class."""
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(_Generator))


def _refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    tracing = threading.get_ident()

    @functools.wraps(original)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == tracing and not _restored_by_caller():
            _refuse(f"the function asks the generator of random numbers for `{name}`")
        return original(self, *args, **kwargs)

    return asked


def _class_of_generators(original: Any) -> Any:
    tracing = threading.get_ident()

    class Generators(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == tracing and not _restored_by_caller():
                _refuse("the function makes a generator of random numbers")
            return original(*args, **kwargs)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, original)

    return Generators("Generator", (), {"__doc__": original.__doc__, "__module__": original.__module__})


# Modules that save and restore a generator: a checkpoint's draws are part of the graph, and Dynamo, which reads
# functions of higher-order operators, draws nothing.
_THEIR_OWN = frozenset({"torch.utils.checkpoint", "torch._dynamo.convert_frame"})


def _restored_by_caller() -> bool:
    """Whether PyTorch or symshape calls, rather than the user's innermost line."""
    frame: Any = sys._getframe(2)
    while frame is not None and not is_users(frame):
        name = frame.f_globals.get("__name__", "")
        if name in _THEIR_OWN or name.startswith("symshape."):
            return True
        frame = frame.f_back
    return False


def _refuse(what: str) -> NoReturn:
    raise CompileError(
        what,
        where=with_text(user_line_now()),
        next_step="symshape.compile breaks the graph there; or do it outside of the function",
    )
