"""Fallbacks: when a pass, a step of code generation or loading fails, less of the graph is compiled.

In this order: the compile is repeated without the pass that failed; with library calls for the operations at fault;
then the whole graph runs as library calls (``graph_as_calls``). Each failure is one warning, with the command that
replays it, and an entry of ``GraphReport.fallbacks``. ``strict`` (an option; SYMSHAPE_STRICT=1) raises instead.

There is no fallback for the user's own errors, nor, in a program of several ranks, for failures that may be one rank's
alone (a full disk, a missing library): all ranks must compile alike.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from symshape.codegen.host.program_text import LibraryCall
from symshape.errors import (
    ContradictionError,
    FallbackWarning,
    KernelFailure,
    OptionError,
    ShapeConstraintError,
    StepFailure,
)
from symshape.frontend.bridge.dynamo import is_control_flow
from symshape.options import Options
from symshape.passes.framework.manager import PassFailure, UnverifiedFailure, writable
from symshape.tools.report import Fallback, GraphReport

log = logging.getLogger("symshape.fallbacks")
USER_ERRORS = (OptionError, ShapeConstraintError, ContradictionError)
# Steps whose operations at fault are tried as library calls before the pass itself is left out.
_BY_OPERATION = ("lower-aten",)
_ROUNDS = 16  # of library calls for further operations; then the graph is run as it is
_LOAD = "load"


@dataclass(frozen=True)
class Attempt:
    """What a compile leaves out. ``without``: passes, by name; ``calls``: graph nodes that stay library calls;
    ``as_calls``: nothing is compiled. ``fallbacks``: the failures that led here. ``verify_each``: the IR is verified
    after each pass, so that a failure names the pass at fault and keeps its input."""

    without: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    as_calls: bool = False
    rounds: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    verify_each: bool = True


def next_attempt(attempt: Attempt, error: Exception, strict: bool, folder: Path) -> Attempt:
    """The attempt after a failure: first with each pass verified, if they were not, then with less of the graph. Raises
    ``error`` if nothing is left to try, or no fallback is allowed."""
    if isinstance(error, UnverifiedFailure):
        return replace(attempt, verify_each=True)
    if attempt.as_calls or not may_fall_back(error, strict):
        raise error
    failure = error if isinstance(error, StepFailure) else None
    step = failure.step if failure is not None else "compile"
    calls = [name for name in failure.operations if name not in attempt.calls] if failure is not None else []
    if calls and (isinstance(error, KernelFailure) or step in _BY_OPERATION) and attempt.rounds < _ROUNDS:
        action = f"library calls for {', '.join(calls)}"
        found = Attempt(attempt.without, (*attempt.calls, *calls), rounds=attempt.rounds + 1)
    elif isinstance(error, PassFailure) and step not in attempt.without:
        action = f"the graph was compiled without the pass {step}"
        if error.instead:
            action = f"the graph was compiled with {error.instead}"
        found = Attempt((*attempt.without, step), attempt.calls, rounds=attempt.rounds)
    else:
        action = "the graph is run as library calls"
        found = Attempt(attempt.without, attempt.calls, as_calls=True)
    reason = failure.what if failure is not None else f"{type(error).__name__}: {error}".splitlines()[0]
    fallback = Fallback(step, reason, action, failure.command if failure is not None else "")
    return Attempt(found.without, found.calls, found.as_calls, found.rounds, (*attempt.fallbacks, fallback))


def may_fall_back(error: Exception, strict: bool) -> bool:
    """Whether a failure may lead to a fallback. Raises the user's own error if that is its cause."""
    causes = list(causes_of(error))
    for one in causes:
        if isinstance(one, USER_ERRORS) and one is not error:
            raise one from None
    if isinstance(error, USER_ERRORS) or strict or any(map(is_control_flow, causes)):
        return False
    return not (several_ranks() and is_local(error))


def warn_of_fallbacks(fallbacks: tuple[Fallback, ...] | list[Fallback], kind: str) -> None:
    """Warns once of the fallbacks of a graph; the same failures of other graphs are only logged."""
    if not fallbacks:
        return
    if (collected := _COLLECTED.get()) is not None:
        collected += fallbacks
    text = "".join(f"\n  {one}" + (f"\n    replay it with: {one.command}" if one.command else "") for one in fallbacks)
    log.info("%s graph:%s", kind, text)
    hint = '\n  options={"strict": True} or SYMSHAPE_STRICT=1 make it an error'
    key = tuple((one.step, one.reason) for one in fallbacks)
    _warn_once(key, f"symshape: not all of the {kind} graph was compiled.{text}{hint}")


def rewrite_fallback(name: str, gm: torch.fx.GraphModule, error: Exception, options: Options) -> Fallback:
    """The fallback for a rewrite of a traced graph that failed, with its warning: the graph stays as it was. Raises
    StepFailure if no fallback is allowed."""
    reason = f"pass '{name}' failed: {type(error).__name__}: {error}"
    file = write_graph(gm, name, error, Path(options.debug_dir))
    failure = StepFailure(reason, step=name, command=f"cat {file}", next_step=f"the graph is in {file}")
    failure.__cause__ = error
    if not may_fall_back(failure, options.strict):
        raise failure from error
    fallback = Fallback(name, reason, f"the graph was compiled without the pass {name}", failure.command)
    warn_of_fallbacks((fallback,), "traced")
    return fallback


def eager_graph_report(gm: torch.fx.GraphModule, error: Exception, options: Options) -> GraphReport:
    """The report of a graph that AOTAutograd could not trace and that runs in eager mode, with its warning."""
    file = write_graph(gm, "trace", error, Path(options.debug_dir))
    reason = f"it cannot be traced: {type(error).__name__}: {error}".splitlines()[0]
    fallback = Fallback("trace", reason, "the graph is run in eager mode", f"cat {file}")
    warn_of_fallbacks((fallback,), "traced")
    calls = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
    called = [LibraryCall(str(node.target), ()) for node in calls]
    return GraphReport(kind="eager", target="calls", called=called, fallbacks=[fallback], program_source=gm.code)


# The list that collects fallbacks with a warning, if any (`collected_fallbacks`).
_COLLECTED: ContextVar[list[Fallback] | None] = ContextVar("symshape_fallbacks", default=None)


@contextmanager
def collected_fallbacks() -> Iterator[list[Fallback]]:
    """Collects the fallbacks that are warned of inside."""
    collected: list[Fallback] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


_said: set[tuple[tuple[str, str], ...]] = set()


def _warn_once(key: tuple[tuple[str, str], ...], text: str) -> None:
    if key not in _said:
        _said.add(key)
        warnings.warn(text, FallbackWarning, stacklevel=2)


def several_ranks() -> bool:
    """Whether this process is one of several ranks."""
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def is_local(error: BaseException) -> bool:
    """Whether a failure may be this process's alone: of its memory, its disk, its libraries."""
    kinds = (OSError, MemoryError, ImportError, torch.OutOfMemoryError)
    return any(isinstance(one, kinds) or getattr(one, "step", "") == _LOAD for one in causes_of(error))


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """The error and the chain of its causes (``__cause__``)."""
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__


def write_graph(gm: torch.fx.GraphModule, step: str, error: Exception, folder: Path) -> str:
    """Writes a traced graph, and the traceback of what failed on it, to a new file of ``folder``; returns its path."""
    import traceback

    folder = writable(folder)
    file = folder / f"{step}-{sum(1 for _ in folder.glob(f'{step}-*.txt'))}.txt"
    text = "".join(traceback.format_exception(error))
    file.write_text(f"{gm.print_readable(print_output=False)}\n{text}")
    return str(file)
