"""Dynamo's callback for frames, and the data that it keeps for a function's code."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
import torch._dynamo.config
from torch._dynamo.code_context import code_context
from torch._dynamo.convert_frame import CatchErrorsWrapper
from torch._dynamo.guards import DeletedGuardManagerWrapper
from torch._dynamo.types import (
    ConvertFrameReturn,
    FrameAction,
    FrameExecStrategy,
    GuardedCode,
    wrap_guarded_code,
)

from symshape.frontend.bridge.code_objects import give_code_object


class FrameCallback(CatchErrorsWrapper):
    """Dynamo's callback for a frame without compiled code; by default it does what Dynamo's own does. A subclass
    replaces that (rather than wrapping it: some stances of ``torch.compiler.set_stance`` look for the backend two steps
    below), and is pickled and copied like it."""

    def __init__(self, original: CatchErrorsWrapper) -> None:
        super().__init__(original._torchdynamo_orig_backend, original.hooks)


def optimized(
    fn: Any, backend: Any, callback: Callable[[Any], FrameCallback], *, one_graph: bool, habits: dict[str, Any]
) -> Any:
    """``torch.compile(fn)`` with ``callback(original)`` in the place of Dynamo's own. ``habits``: what else
    ``torch._dynamo.optimize`` takes."""
    context: Any = torch._dynamo.optimize(backend, nopython=one_graph, **habits)
    if hasattr(context, "callback"):  # not when Dynamo is switched off
        context.callback = callback(context.callback)
    compiled = context(fn)
    give_code_object(fn, compiled)
    return compiled


def is_argument_of_compile(name: str) -> bool:
    """Whether this version of PyTorch has an argument of ``torch.compile``."""
    return name in inspect.signature(torch._dynamo.eval_frame._optimize).parameters


def backend_of(callback: Any) -> Any:
    """The backend of what Dynamo calls for a frame."""
    return torch._dynamo.eval_frame.innermost_backend(callback)


def running_locals(frame: Any) -> dict[str, Any]:
    """The local variables of a frame that Dynamo is called for."""
    found: dict[str, Any] = frame.f_locals
    return found


def has_guards(found: Any) -> bool:
    """Whether Dynamo has compiled a frame."""
    return getattr(found, "guarded_code", None) is not None


def was_skipped(found: Any) -> bool:
    """Whether Dynamo runs the frame in eager mode from now on."""
    return not has_guards(found) and bool(found.frame_exec_strategy.cur_action == FrameAction.SKIP)


def skipped_for_mode(found: Any) -> bool:
    """Whether Dynamo runs a frame in eager mode because a dispatch mode is active."""
    return was_skipped(found) and torch._C._len_torch_dispatch_stack() > 0


def skip_once() -> Any:
    """Dynamo's result for a frame that runs in eager mode, for this call alone."""
    return ConvertFrameReturn(apply_to_code=False)


def only_run() -> Any:
    """Dynamo's result for a frame that is not compiled again: existing entries run if their guards hold, else the frame
    runs in eager mode; functions that it calls are compiled."""
    return ConvertFrameReturn(frame_exec_strategy=FrameExecStrategy(FrameAction.RUN_ONLY, FrameAction.DEFAULT))


def applies_to_code(found: Any) -> bool:
    """Whether Dynamo's result for a frame is one for all frames of its code."""
    return bool(found.apply_to_code)


def is_kept_by_dynamo(found: Any) -> bool:
    """Whether Dynamo has stored the compiled code as an entry of the frame."""
    return found.guarded_code.guard_manager.cache_entry is not None


def region() -> int:
    """The region of the running call: code that is compiled in one serves no call of another one."""
    return int(getattr(torch._dynamo.eval_frame, "get_eval_frame_isolate_recompiles_id", lambda: -1)())


def shared(entry: Any) -> Any:
    """Dynamo's result for a frame that runs the code of an existing entry, for this call alone. Dynamo stores all
    results as entries; the guards of this one never hold. ``recompile_limit`` does not count it."""
    guards: Any = _NeverHolds()
    return wrap_guarded_code(GuardedCode(entry.code, guards, entry.compile_id))


class _NeverHolds(DeletedGuardManagerWrapper):
    """Guards of an entry that ran once."""

    def __init__(self) -> None:
        super().__init__("it was run once, by a thread that had waited for the compile of another one")
        self.root = None  # type: ignore[assignment]
        # Entries are counted that are for the same objects as a frame: no frame has a variable of this name.
        self.id_matched_objs = {"": weakref.ref(_NeverHolds)}


def recompile_limit() -> int:
    """How many times Dynamo compiles a function (``torch._dynamo.config.recompile_limit``)."""
    return int(torch._dynamo.config.recompile_limit)


def kept_for(code: CodeType) -> dict[str, Any]:
    """Dynamo's table for a code object, which is kept until it is reset."""
    found: dict[str, Any] = code_context.get_context(code)
    return found


def is_anything_kept_for(code: CodeType) -> bool:
    return code_context.has_context(code)


def accumulated_recompile_limit() -> int:
    """How many times Dynamo compiles a function together with its resume functions."""
    return int(torch._dynamo.config.accumulated_recompile_limit)
