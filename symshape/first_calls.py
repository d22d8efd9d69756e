"""First calls of a frame by several threads: one thread compiles, the others wait and share the result.

Dynamo looks for code before it takes its lock: eight threads that make a first call together all find none, and each
compiles, one after the other. Here a frame is looked up once more when its thread has the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.frontend.bridge.dynamo import compile_lock
from symshape.frontend.bridge.earlier_entries import entries_of, holds_for
from symshape.frontend.bridge.frame_callback import (
    applies_to_code,
    has_guards,
    is_kept_by_dynamo,
    kept_for,
    region,
    running_locals,
    shared,
    was_skipped,
)

_LATEST = "symshape: latest result"  # in what Dynamo keeps for a code object: (backend, region, result)


def compiled_once(frame: Any, backend: Any, compile_frame: Callable[[], Any]) -> Any:
    """Dynamo's result for a frame: that of another thread, if this one had to wait for it and it serves the call, else
    ``compile_frame()``. One thread at a time runs this; an error is raised in its own thread only."""
    waited = not compile_lock.acquire(blocking=False)
    if waited:
        compile_lock.acquire()
    try:
        found = _made_meanwhile(frame, backend, waited)
        if found is None:
            found = compile_frame()
            kept_for(frame.f_code)[_LATEST] = backend, region(), found
        return found
    finally:
        compile_lock.release()


def _made_meanwhile(frame: Any, backend: Any, waited: bool) -> Any:
    """The code that another thread has compiled for this frame meanwhile; None if none serves the call."""
    of, where, latest = kept_for(frame.f_code).get(_LATEST, (None, None, None))
    if latest is None or where != region() or of != backend:
        latest = None
    elif waited and was_skipped(latest) and applies_to_code(latest):
        return latest
    # A thread that has compiled hands its code to Dynamo after it has left the lock.
    on_its_way = latest is not None and has_guards(latest) and not is_kept_by_dynamo(latest)
    if not waited and not on_its_way:
        return None
    made = [latest.guarded_code] if on_its_way else []
    entries = [*made, *entries_of(frame.f_code, backend)]
    found = next((entry for entry in entries if holds_for(entry, running_locals(frame))), None)
    return None if found is None else shared(found)
