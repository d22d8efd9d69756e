"""Texts of traced values in the user's function under ``symshape.jit``, and ``divmod`` of sizes.

A text is data of Python: that of a size is its number, with an entry for each, as for ``int(n)``; a tensor has none.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from symshape.frontend.bridge.source_lines import is_users
from symshape.frontend.bridge.trace_without_dynamo import reads_check_message
from symshape.frontend.bridge.tracing_errors import TensorHasNoText
from symshape.frontend.patches.patch import Changes

_NUMBERS: dict[type, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
NAMES = tuple(f"torch.{kind.__name__}" for kind in _NUMBERS)
_PRINTING = ("logging", "sympy")  # they print symbols for people, or of their own


def texts_are_of_numbers(changes: Changes) -> None:
    """Makes the text of a size that of its number where the user's code asks for it; symbols would be part of results.
    The text of a tensor is an error: it would be that of a traced one without elements."""
    tracing = threading.get_ident()

    def is_asked(frame: FrameType) -> bool:
        of_user = is_users(frame) and frame.f_globals.get("__name__", "").split(".")[0] not in _PRINTING
        return of_user and threading.get_ident() == tracing and not reads_check_message(frame)

    for kind, number in _NUMBERS.items():
        for name, function in (("__repr__", repr), ("__format__", format)):
            changes.wrap(kind, name, _of_number(is_asked, function, number))
    for name in ("__repr__", "__format__"):
        changes.wrap(FunctionalTensor, name, _of_tensor(is_asked))


def _of_number(
    is_asked: Callable[[FrameType], bool], function: Callable[..., str], number: Callable[[Any], Any]
) -> Callable[..., Any]:
    def wrapper(original: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(original)
        def text(self: Any, *spec: str) -> str:
            return function(number(self), *spec) if is_asked(sys._getframe(1)) else original(self, *spec)

        return text

    return wrapper


def _of_tensor(is_asked: Callable[[FrameType], bool]) -> Callable[..., Any]:
    def wrapper(original: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(original)
        def text(self: Any, *spec: str, **named: Any) -> str:
            if is_asked(sys._getframe(1)):
                raise TensorHasNoText
            return original(self, *spec, **named)

        return text

    return wrapper


def sizes_have_divmod(changes: Changes) -> None:
    """Gives sizes ``divmod``, as quotient and remainder."""
    for kind in _NUMBERS:
        changes.attribute(kind, "__divmod__", lambda self, other: (self // other, self % other))
        changes.attribute(kind, "__rdivmod__", lambda self, other: (other // self, other % self))
