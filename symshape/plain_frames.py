"""Frames of plain ``torch.compile(backend="symshape")``: makes the patches that one graph for all sizes needs.

The rules are those of ``symshape.compile``, the settings of Dynamo the user's.

Dynamo says when it begins to trace a frame. After ``torch._dynamo.reset()`` it does not, until the backend is called
for the first graph: that frame is traced once more.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from symshape.frontend.bridge.frame_callback import kept_for
from symshape.frontend.bridge.plain_frames import PlainFrame, frame_being_compiled, tell_of_frames, trace_again
from symshape.frontend.opaque_calls.frame_decisions import (
    Frame,
    FrameDecisions,
    Reanalyse,
    current_frame,
    deciding,
    learn,
)
from symshape.frontend.patches.patch import Scope, is_plain_frame, is_traced_by_our_rules
from symshape.frontend.patches.registry import in_force
from symshape.frontend.patches.settings import FX, configured

P = ParamSpec("P")
R = TypeVar("R")

_DECISIONS = "symshape: decisions"  # in what Dynamo keeps for a code object


def traced_by_our_rules(backend: Callable[P, R]) -> Callable[P, R]:
    """Wraps a backend: frames that Dynamo compiles with it are traced by our rules from their beginning, and once more
    where the backend finds that a decision is missing."""

    @functools.wraps(backend)
    def compile_graph(*args: P.args, **kwargs: P.kwargs) -> R:
        if not is_traced_by_our_rules() and _enter(compile_graph):
            tell_of_frames(begin)
            trace_again("by the rules of symshape")
        try:
            return backend(*args, **kwargs)
        except Reanalyse as wanted:
            if is_plain_frame() and learn(current_frame().decisions, wanted):
                trace_again(wanted.reason)
            raise

    def begin(_: Any) -> None:
        if not is_traced_by_our_rules():
            _enter(compile_graph)

    tell_of_frames(begin)
    return compile_graph


def _enter(backend: Callable[..., Any]) -> bool:
    """Whether Dynamo compiles a frame with this backend: our rules are then in force until it has."""
    frame = frame_being_compiled()
    if frame is None or frame.backend is not backend:
        return False
    frame.until_compiled.enter_context(_in_force(frame))
    return True


@contextlib.contextmanager
def _in_force(frame: PlainFrame) -> Iterator[None]:
    """Our rules, without settings of Dynamo's: of two sizes that are equal at the first call each is a symbol."""
    decisions = kept_for(frame.code).setdefault(_DECISIONS, FrameDecisions())
    with in_force(Scope("frame", plain=True), (configured(FX, use_duck_shape=False),)):
        with deciding(Frame(decisions, frame.one_graph)):
            yield
