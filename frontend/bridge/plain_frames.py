"""Finds the frame that plain ``torch.compile`` is compiling, and traces it once more where needed.

Uses Dynamo's callbacks (``torch._dynamo.callback``), which it calls before it traces a frame; of nested compiles for
the outermost alone.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn

import torch
from torch._dynamo import convert_frame
from torch._dynamo.callback import callback_handler
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.exc import (
    RestartAnalysis,
    ShortenTraceback,
    SkipFrame,
    TorchDynamoException,
    Unsupported,
    UserError,
)
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode


@dataclass(frozen=True)
class PlainFrame:
    """A frame that Dynamo compiles. ``variables``, ``outer``: its local and global variables; ``backend``: the user's,
    with the arguments ``given``; ``one_graph``: a graph break is an error; ``until_compiled``: contexts that are left
    when the frame has been compiled, or has failed."""

    code: CodeType
    variables: Mapping[str, Any]
    outer: Mapping[str, Any]
    backend: Any
    given: Mapping[str, Any]
    one_graph: bool
    until_compiled: contextlib.ExitStack


class _StartCallbacks(list[Callable[[Any], None]]):
    """Dynamo's list of callbacks. ``torch._dynamo.reset()`` clears it, and nothing says so: a frame that has no graph
    before its first graph break would not be traced by our rules. ``kept`` stays in the list."""

    def __init__(self, callbacks: Iterable[Callable[[Any], None]]) -> None:
        super().__init__(callbacks)
        self.kept: list[Callable[[Any], None]] = []

    def clear(self) -> None:
        self[:] = self.kept


def tell_of_frames(begin: Callable[[Any], None]) -> None:
    """Registers ``begin``, which Dynamo calls before it traces a frame, for the lifetime of the process."""
    callbacks = callback_handler.start_callbacks
    if not isinstance(callbacks, _StartCallbacks):
        callbacks = callback_handler.start_callbacks = _StartCallbacks(callbacks)
    if begin not in callbacks.kept:
        callbacks.kept.append(begin)
        callbacks.append(begin)


def frame_being_compiled() -> PlainFrame | None:
    """The innermost frame that Dynamo compiles in this thread."""
    frame, contexts = sys._getframe(), None
    while frame is not None:
        if frame.f_globals is vars(convert_frame):
            if frame.f_code.co_name == "compile_inner" and contexts is None:
                contexts = frame.f_locals["stack"]
            elif frame.f_code is convert_frame._compile.__code__ and contexts is not None:
                code = frame.f_locals["code"]
                variables = frame.f_locals["locals"]
                outer = frame.f_locals["globals"]
                backend, given = _given(frame.f_locals["compiler_fn"])
                return PlainFrame(code, variables, outer, backend, given, frame.f_locals["one_graph"], contexts)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _given(backend: Any) -> tuple[Any, dict[str, Any]]:
    """The user's backend and the arguments that it is called with, without the wrappers of Dynamo and
    ``torch.compile``."""
    found: Any = innermost_backend(backend)
    given: dict[str, Any] = {}
    if isinstance(found, torch._TorchCompileWrapper):
        found, given = found.compiler_fn, dict(found.kwargs)
    while isinstance(found, functools.partial):
        found, given = found.func, {**found.keywords, **given}
    return found, given


def is_internal(error: Exception) -> bool:
    """Whether Dynamo would make an InternalTorchDynamoError of what tracing a frame has raised."""
    passed = (TorchDynamoException, AssertionError, IndexError, ConstraintViolationError, GuardOnDataDependentSymNode)
    return not isinstance(error, passed)


def is_restart(error: Exception) -> bool:
    """Whether Dynamo traces a frame again after this error."""
    return isinstance(error, RestartAnalysis)


def runs_as_it_is(error: Exception) -> bool:
    """Whether Dynamo runs a frame in eager mode after this error."""
    return isinstance(error, (SkipFrame, Unsupported, UserError))


class _TraceAgain(ShortenTraceback, RestartAnalysis):
    """Makes Dynamo restart the trace of a frame. Derived from the first of two exception classes that Dynamo lets a
    backend raise."""


def trace_again(reason: str, attempts: Any = None) -> NoReturn:
    """Makes Dynamo trace the frame once more; the trace may take another path. ``attempts``: Dynamo's state of earlier
    attempts, if it is not tracing the frame now."""
    (InstructionTranslator.current_tx().speculation_log if attempts is None else attempts).clear()
    raise _TraceAgain(reason, restart_reason=reason, first_useful_frame=None)
