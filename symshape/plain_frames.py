"""Frames of plain ``torch.compile(backend="symshape")``: applies the patches that one graph for all sizes needs.

The rules and settings are those of ``symshape.compile``; whether sizes are dynamic is the user's choice. Without one
they are constants until the first of them has changed, and then all are symbols.

Dynamo calls back when it starts to trace a frame. While it is tracing another one (in another thread, or around this
one) it does not: then the backend is called for the frame's first graph, and the frame is traced once more. A frame in
which one of our rules fails is also traced once more, by PyTorch's own rules and settings.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, ParamSpec, TypeVar

from symshape.frontend.bridge.frame_callback import kept_for
from symshape.frontend.bridge.plain_frames import (
    PlainFrame,
    frame_being_compiled,
    is_internal,
    is_restart,
    runs_as_it_is,
    tell_of_frames,
    trace_again,
)
from symshape.frontend.opaque_calls.frame_decisions import (
    Frame,
    FrameDecisions,
    Reanalyse,
    current_frame,
    deciding,
    learn,
)
from symshape.frontend.patches.checks.dynamo_errors import (
    eager_error,
    eager_error_passing,
    raised_by_patch,
    users_error,
)
from symshape.frontend.patches.inputs.changed_sizes import have_changed
from symshape.frontend.patches.patch import Scope, is_plain_frame, is_traced_by_our_rules
from symshape.frontend.patches.registry import in_force
from symshape.frontend.patches.settings import MORE_SETTINGS, Change
from symshape.options import Options
from symshape.policy import SpecialisationPolicy
from symshape.pytorch_rules import may_use_pytorch_rules, warn_of_pytorch_rules

P = ParamSpec("P")
R = TypeVar("R")

_DECISIONS = "symshape: decisions"  # in what Dynamo keeps for a code object


def traced_by_our_rules(backend: Callable[P, R]) -> Callable[P, R]:
    """Wraps a backend: frames that Dynamo compiles with it are traced by our rules from their beginning, and once more
    where the backend finds that a decision is missing."""

    @functools.wraps(backend)
    def compile_graph(*args: P.args, **kwargs: P.kwargs) -> R:
        if not is_traced_by_our_rules() and _enter(compile_graph):
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
    """The rules that a frame is traced by."""
    decisions = kept_for(frame.code).setdefault(_DECISIONS, FrameDecisions())
    with in_force(Scope("plain")), contextlib.ExitStack() as rules:
        all_symbols = have_changed(decisions, frame.variables, frame.outer)
        traced, integers = _Tracing(frame, rules, all_symbols), SpecialisationPolicy.integers
        with deciding(Frame(decisions, frame.one_graph, integers=integers, traced=traced)):
            yield


class _Tracing:
    """Traces a frame by our rules and settings; where one of them fails, by PyTorch's own rules and the user's
    settings. ``rules``: the context of those in force; ``all_symbols``: all sizes and integers are symbols."""

    def __init__(self, frame: PlainFrame, rules: contextlib.ExitStack, all_symbols: bool) -> None:
        self._frame, self._rules, self._before = frame, rules, sys.exception()
        self._failure: Exception | None = None  # of our rules
        self._enter(patched=True, more=MORE_SETTINGS["all"] if all_symbols else ())

    def _enter(self, patched: bool, more: Sequence[Change] = ()) -> None:
        self._rules.enter_context(in_force(Scope("frame", plain=True, only_settings=not patched), more))

    def __call__(self, code: CodeType, attempts: Any, trace: Callable[[], R]) -> R:
        """Returns the result of ``trace``. ``attempts``: Dynamo's state of earlier attempts."""
        if code is not self._frame.code:
            return trace()
        try:
            traced = trace()
        except Exception as error:
            if is_restart(error):
                raise
            if self._failure is None and self._may_be_ours(error):
                self._failure = error
                self._rules.close()
                self._enter(patched=False)
                trace_again("a rule of symshape has failed", attempts)
            failure = error if self._failure is None else self._failure
            if not runs_as_it_is(error) and (found := eager_error(failure, self._before)) is not None:
                raise eager_error_passing(found) from None
            if self._failure is not None and not runs_as_it_is(error):
                raise self._failure from None
            self._say()
            raise
        self._say()
        return traced

    def _may_be_ours(self, error: Exception) -> bool:
        if users_error(error, self._before) is not None or not (is_internal(error) or raised_by_patch(error)):
            return False
        given = self._frame.given
        return may_use_pytorch_rules(error, Options.parse(given.get("options"), given.get("mode")).strict)

    def _say(self) -> None:
        if self._failure is not None:
            warn_of_pytorch_rules(self._failure)
