"""The frame compiler of ``symshape.compile``: lets Dynamo trace frames with the patches in force."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from symshape.activity import note
from symshape.errors import OptionError
from symshape.first_calls import compiled_once
from symshape.frontend.bridge.dynamo import name_of_code
from symshape.frontend.bridge.dynamo_counters import GraphBreak, breaks_since, past
from symshape.frontend.bridge.earlier_entries import Failure, entries_of, failures, keep
from symshape.frontend.bridge.frame_callback import (
    FrameCallback,
    accumulated_recompile_limit,
    backend_of,
    has_guards,
    is_anything_kept_for,
    is_argument_of_compile,
    kept_for,
    only_run,
    optimized,
    recompile_limit,
    running_locals,
    skip_once,
    skipped_for_mode,
    was_skipped,
)
from symshape.frontend.bridge.general_shape_env import environments_made
from symshape.frontend.bridge.operators import in_transform
from symshape.frontend.bridge.refused_questions import refused
from symshape.frontend.bridge.repro_settings import repro_after
from symshape.frontend.opaque_calls.frame_decisions import Frame, FrameDecisions, compile_with_decisions
from symshape.frontend.patches.checks.dynamo_errors import eager_error, raised_by_patch, users_error
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force
from symshape.frontend.patches.settings import DYNAMO, MORE_SETTINGS, Change, configured
from symshape.garbage import collected_later
from symshape.graphs import FurtherGraph, further_graph, log_further_graph
from symshape.live_line import compiling
from symshape.policy import SpecialisationPolicy
from symshape.pytorch_rules import may_use_pytorch_rules, warn_of_pytorch_rules
from symshape.specialisation_limits import Limits
from symshape.stack_room import with_room


def compile_with(
    fn: Any,
    backend: Any = "symshape",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    tracing: Tracing | None = None,
    **habits: Any,
) -> Any:
    """``torch.compile(fn, backend=backend)`` with the changes of a frame in force whenever it compiles.

    ``habits``: what else ``torch._dynamo.optimize`` takes. OptionError for what this
    version of PyTorch does not know.
    """
    for name in habits:
        if not is_argument_of_compile(name):
            raise OptionError(f"PyTorch {torch.__version__} has no {name}", next_step=f"leave {name} out")
    tracing = tracing or Tracing()
    more = "static" if dynamic is False else tracing.policy.sizes
    tracing = replace(tracing, more=more, one_graph=fullgraph, recompile_limit=habits.get("recompile_limit"))
    return _compiled(fn, backend, tracing, habits)


def compile_apart(fn: Any, backend: Any, tracing: Tracing) -> Any:
    """``fn`` compiled separately from its other compiled code: they do not share entries or limits."""
    habits = {"isolate_recompiles": True} if is_argument_of_compile("isolate_recompiles") else {}
    return _compiled(fn, backend, replace(tracing, more="unlimited"), habits)


@dataclass(frozen=True)
class Tracing:
    """How frames are traced. ``probe``: operators without a fake rule are run on sample operands; ``strict``: an error
    of ours while tracing is an error; ``more``: a key of ``MORE_SETTINGS``; ``one_graph``: a graph break is an error;
    ``policy``: which sizes are symbols, and for how many values of one a frame is compiled; ``further``, if given,
    collects the reasons of further graphs; ``recompile_limit``: that of ``compile``, if given; ``traced``, if given, is
    called after each frame: with its name, its line, the seconds it took and its graph breaks."""

    probe: bool = True
    strict: bool = True
    more: str = "symbols"
    one_graph: bool = False
    policy: SpecialisationPolicy = SpecialisationPolicy()
    further: list[FurtherGraph] | None = None
    recompile_limit: int | None = None
    traced: Callable[[str, str, float, Sequence[GraphBreak]], None] | None = None


def _compiled(fn: Any, backend: Any, tracing: Tracing, habits: dict[str, Any]) -> Any:
    def callback(usual: Any) -> FrameCompiler:
        return FrameCompiler(usual, tracing)

    return optimized(fn, backend, callback, one_graph=tracing.one_graph, habits=habits)


_APART = "symshape: compiled apart"  # in what Dynamo keeps for a code object: how often


class FrameCompiler(FrameCallback):
    """Compiles a frame with the patches in force; repeats that whenever a decision about the frame is missing."""

    def __init__(self, usual: Any, tracing: Tracing) -> None:
        super().__init__(usual)
        self._tracing = tracing
        self._decisions = FrameDecisions()
        self._backend = backend_of(self)

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if in_transform() and not self._tracing.one_graph:
            return skip_once()  # Dynamo would refuse it, and never compile it again
        return compiled_once(frame, self._backend, lambda: self._compile(frame, cache_entry, frame_state))

    def _compile(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        started, before, code = time.perf_counter(), past(), frame.f_code
        try:
            with compiling(f"{name_of_code(code)} ({Path(code.co_filename).name}:{code.co_firstlineno})"):
                note("trace")
                return self._called(frame, cache_entry, frame_state)
        finally:
            if self._tracing.traced is not None:
                line = f"{code.co_filename}:{code.co_firstlineno}"
                seconds = time.perf_counter() - started
                self._tracing.traced(name_of_code(code), line, seconds, breaks_since(before))

    def _called(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        usual = functools.partial(super().__call__, frame, cache_entry, frame_state)
        entries = entries_of(frame.f_code, self._backend)
        limits = Limits(self._tracing.policy, self._decisions, frame.f_code, self._most, self._tracing.more == "static")
        if entries:
            failed = failures(entries, running_locals(frame))
            self._tell(frame.f_code, len(entries) + 1, failed)
            if not self._tracing.one_graph and limits.is_beyond(failed):
                return only_run()
        with collected_later(), environments_made() as made, refused(frozenset(self._decisions.refused)):
            found = with_room(self._compiled, usual, frame, limits)
        if has_guards(found):
            keep(found.guarded_code.guard_manager, len(entries) + 1, made[-1] if made else None)
        elif entries and limits.has_decided and was_skipped(found):
            return only_run()  # the graphs that there are go on to be used
        elif skipped_for_mode(found):
            return skip_once()  # Dynamo would never compile it again
        return found

    @property
    def _most(self) -> int:
        """The number of graphs after which only graphs for all values are made: ``recompile_limit``, if given;
        otherwise more than PyTorch's own setting (``Limits.settings``)."""
        given = self._tracing.recompile_limit
        return recompile_limit() if given is None else given - 1

    def _tell(self, code: CodeType, number: int, failed: Sequence[Failure]) -> None:
        graph = further_graph(code, number, failed)
        log_further_graph(graph)
        if self._tracing.further is not None:
            self._tracing.further.append(graph)

    def _compiled(self, usual: Callable[[], Any], frame: Any, limits: Limits) -> Any:
        before = sys.exception()
        more = (*MORE_SETTINGS[self._tracing.more], *self._limits(frame.f_code), *limits.settings())
        try:
            return self._traced(usual, frame, more, patched=True)
        except Exception as error:
            found = users_error(error, before)
            if found is not None:
                raise found from None
            if raised_by_patch(error) and may_use_pytorch_rules(error, self._tracing.strict):
                return self._traced_by_pytorch_rules(usual, frame, more, error)
            _raise_as_eager(error, before)
            raise

    def _traced(self, usual: Callable[[], Any], frame: Any, more: Sequence[Change], patched: bool) -> Any:
        of_failures = repro_after() == "dynamo"
        scope = Scope("frame", self._tracing.probe, only_settings=not patched, writes_failures=of_failures)
        with in_force(scope, more):
            policy = self._tracing.policy
            names = frozenset(policy.static), frozenset(policy.dynamic)
            return compile_with_decisions(usual, Frame(self._decisions, self._tracing.one_graph, frame, *names))

    def _traced_by_pytorch_rules(
        self, usual: Callable[[], Any], frame: Any, more: Sequence[Change], error: Exception
    ) -> Any:
        try:
            traced = self._traced(usual, frame, more, patched=False)
        except Exception:
            _raise_as_eager(error, None)
            raise error from None
        warn_of_pytorch_rules(error)
        return traced

    def _limits(self, code: CodeType) -> tuple[Change, ...]:
        """Entries compiled in a region of their own stay beside the function's others, and do not count as them."""
        if self._tracing.more == "unlimited":
            kept = kept_for(code)
            kept[_APART] = kept.get(_APART, 0) + 1
            return ()
        apart = kept_for(code).get(_APART, 0) if is_anything_kept_for(code) else 0
        limit = accumulated_recompile_limit()
        return (configured(DYNAMO, accumulated_recompile_limit=limit + apart),) if apart else ()


def _raise_as_eager(error: Exception, before: BaseException | None) -> None:
    """Raises eager mode's error for the call that tracing has failed at, if there is one. ``before``: the exception
    being handled when Dynamo was called."""
    found = eager_error(error, before)
    if found is not None:
        raise found from None
