"""Messages while a frame is compiled: strings that contain sizes and numbers, warnings, and log messages printed
once."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import SkipFunctionVariable, SymNodeVariable
from torch._dynamo.variables.misc import LoggingLoggerVariable, StringFormatVariable

from symshape.frontend.patches.patch import Changes
from symshape.runtime.torch_c import first_seen


def numbers_in_strings(changes: Changes) -> None:
    """Allows numbers that are arguments in f-strings, which would break the graph."""
    changes.wrap(InstructionTranslatorBase, "_format_value", _formatting)


def warnings_are_given(changes: Changes) -> None:
    """Issues a warning when the frame is compiled, at the user's line, where Python shows it once anyway. It would
    break the graph."""
    changes.wrap(SkipFunctionVariable, "call_function", _calling)


def messages_of_once(changes: Changes) -> None:
    """Calls a logger's method that prints each message once (``warning_once`` of transformers) when the frame is
    compiled. It would break the graph."""
    changes.wrap(LoggingLoggerVariable, "call_method", _logging)


@functools.cache
def _formatting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``_format_value``, which would use the number of this call. A float is inserted at call time; an integer
    is, like a size, that of this call, because the string may be a name."""

    create: Any = StringFormatVariable.create
    takes_translator = "tx" in inspect.signature(create).parameters  # from PyTorch 2.15 on

    @functools.wraps(original)
    def format_value(self: Any, spec: Any, flags: int) -> None:
        value = self.stack[-1]
        if not isinstance(value, SymNodeVariable) or value.source is None:
            original(self, spec, flags)
            return
        if isinstance(value.sym_num, torch.SymInt):
            self.stack[-1] = SymNodeVariable(value.as_proxy(), value.sym_num)
            original(self, spec, flags)
            return
        text = "{" + {0: "", 1: "!s", 2: "!r", 3: "!a"}[flags & 3] + ":" + spec.as_python_constant() + "}"
        before = (self,) if takes_translator else ()
        self.push(create(*before, text, [self.pop()], {}))

    return format_value


@functools.cache
def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.value is not warnings.warn or not _warned(tx, args, kwargs):
            return original(self, tx, args, kwargs)
        return torch._dynamo.variables.ConstantVariable.create(None)

    return call_function


@functools.cache
def _logging(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if tx.export or not _said_once(getattr(self.value, name, None), args, kwargs):
            return original(self, tx, name, args, kwargs)
        return torch._dynamo.variables.ConstantVariable.create(None)

    return call_method


def _said_once(method: Any, args: Any, kwargs: Any) -> bool:
    """Calls a method that remembers its calls, so that later ones do nothing; returns whether it could be called."""
    if not isinstance(getattr(method, "__func__", None), _Remembering):
        return False
    try:
        given, named = [*map(_plain, args)], {name: _plain(value) for name, value in kwargs.items()}
    except _NotPlain:
        return False
    return method(*given, **named) is None


_Remembering = type(functools.cache(lambda: None))


def _warned(tx: Any, args: Any, kwargs: Any) -> bool:
    """Issues a warning; returns whether it could be: not if it contains a tensor, or a filter makes it an error."""
    try:
        names = ("message", "category", "stacklevel", "source")
        given = dict(zip(names, map(_plain, args))) | {name: _plain(value) for name, value in kwargs.items()}
    except _NotPlain:
        return False
    for _ in range((given.get("stacklevel") or 1) - 1):
        tx = tx.parent or tx
    seen = tx.f_globals.setdefault("__warningregistry__", {})
    try:
        warnings.warn_explicit(
            given["message"],
            given.get("category") or UserWarning,
            tx.f_code.co_filename,
            tx.lineno,
            tx.f_globals.get("__name__"),
            seen,
        )
    except Warning:
        return False
    return True


class _NotPlain(Exception):
    pass


def _plain(value: Any) -> Any:
    """The value that a variable has at this call. _NotPlain if it is not known."""
    from torch._dynamo import variables

    if isinstance(value, variables.SymNodeVariable):
        seen = first_seen(value.sym_num)
        if seen is not None:
            return seen
    elif isinstance(value, variables.StringFormatVariable):
        named = {name: _plain(one) for name, one in value.sym_kwargs.items()}
        return value.format_string.format(*map(_plain, value.sym_args), **named)
    elif isinstance(value, variables.lists.SizeVariable):
        return torch.Size(map(_plain, value.items))
    elif isinstance(value, (variables.TupleVariable, variables.ListVariable)):
        return value.python_type()(map(_plain, value.items))
    elif value.is_python_constant():
        return value.as_python_constant()
    raise _NotPlain
