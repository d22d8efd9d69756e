"""Finds the frame that plain ``torch.compile`` is compiling, and traces it once more where needed.

Dynamo calls the functions of ``torch._dynamo.callback`` before it traces a frame. It forgets them in
``torch._dynamo.reset()``, and calls them for the outermost of nested compiles alone.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn

import torch
from torch._dynamo import convert_frame
from torch._dynamo.callback import callback_handler
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.exc import RestartAnalysis, ShortenTraceback
from torch._dynamo.symbolic_convert import InstructionTranslator


@dataclass(frozen=True)
class PlainFrame:
    """A frame that Dynamo compiles. ``backend``: what the user has given; ``one_graph``: a graph break is an error;
    ``until_compiled``: contexts that Dynamo leaves when it has compiled the frame, or failed."""

    code: CodeType
    backend: Any
    one_graph: bool
    until_compiled: contextlib.ExitStack


def tell_of_frames(begin: Callable[[Any], None]) -> None:
    """Lets Dynamo call ``begin`` before it traces a frame, until it is reset."""
    if begin not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(begin)


def frame_being_compiled() -> PlainFrame | None:
    """The innermost frame that Dynamo compiles in this thread."""
    frame, contexts = sys._getframe(), None
    while frame is not None:
        if frame.f_globals is vars(convert_frame):
            if frame.f_code.co_name == "compile_inner" and contexts is None:
                contexts = frame.f_locals["stack"]
            elif frame.f_code is convert_frame._compile.__code__ and contexts is not None:
                code = frame.f_locals["code"]
                backend = _given(frame.f_locals["compiler_fn"])
                return PlainFrame(code, backend, frame.f_locals["one_graph"], contexts)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _given(backend: Any) -> Any:
    """The user's backend, without the wrappers of Dynamo and ``torch.compile``."""
    found: Any = innermost_backend(backend)
    if isinstance(found, torch._TorchCompileWrapper):
        found = found.compiler_fn
    while isinstance(found, functools.partial):
        found = found.func
    return found


class _TraceAgain(ShortenTraceback, RestartAnalysis):
    """Dynamo traces the frame from its beginning. Of what a backend raises it passes on the first of the two kinds."""


def trace_again(reason: str) -> NoReturn:
    """Called by a backend: Dynamo traces the frame once more, and need not take the path that it took."""
    InstructionTranslator.current_tx().speculation_log.clear()
    raise _TraceAgain(reason, restart_reason=reason, first_useful_frame=None)
