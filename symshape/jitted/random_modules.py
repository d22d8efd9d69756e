"""Numbers that the modules ``random`` and ``numpy.random`` draw while a function is traced without Dynamo.

They would be drawn once, by the trace, and be constants of the entry; what seeds the modules would be run once too.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy

from symshape.errors import CompileError, with_text
from symshape.frontend.bridge.source_lines import is_users

# The generators behind the functions of the modules.
_PYTHONS: Any = random.random.__self__  # type: ignore[attr-defined]
_NUMPYS: Any = numpy.random.rand.__self__  # type: ignore[attr-defined]


def refusing_draws(run: Callable[[], Any]) -> Any:
    """What ``run`` returns. CompileError at the user's line, and the modules are as they were, if it has drawn; what
    other threads draw meanwhile is theirs."""
    before = _states()
    result = run()
    if not _changed(before, _states()):
        return result
    drawn, line = _draw_of_this_thread(run)
    if not drawn:
        if threading.active_count() > 1:
            return result
        drawn = _changed(before, _states())
    _restore(before)
    raise CompileError(
        f"the function draws from the module `{drawn}`, or seeds it",
        where=with_text(line),
        next_step="symshape.compile breaks the graph there; or draw with torch.rand, or outside of the function",
    )


def _states() -> dict[str, Any]:
    return {"random": random.getstate(), "numpy.random": numpy.random.get_state()}


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    numpy.random.set_state(states["numpy.random"])


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The module whose state is another; "" if none is."""
    if before["random"] != after["random"]:
        return "random"
    ours, theirs = before["numpy.random"], after["numpy.random"]
    same = ours[0] == theirs[0] and numpy.array_equal(ours[1], theirs[1]) and ours[2:] == theirs[2:]
    return "" if same else "numpy.random"


def _draw_of_this_thread(run: Callable[[], Any]) -> tuple[str, str]:
    """The module and ``file:line`` of the user's: ``run`` is run again, and each method of the modules' generators that
    it calls is seen. Twice "" where there is none."""
    found: list[tuple[str, str]] = []

    def draws(module: str, frame: FrameType | None) -> None:
        while frame is not None and not _is_of_interest(frame):
            frame = frame.f_back
        found.append((module, f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""))

    def see(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__self__", None) is _PYTHONS and called.__name__ != "getstate":
            draws("random", frame)

    usual = sys.getprofile()
    with _watched_numpy(lambda frame: draws("numpy.random", frame)):
        sys.setprofile(see)
        try:
            run()
        finally:
            sys.setprofile(usual)
    return found[0] if found else ("", "")


@contextlib.contextmanager
def _watched_numpy(see: Callable[[FrameType], None]) -> Iterator[None]:
    """Calls ``see`` for each function of ``numpy.random`` that this thread calls: no profiler sees those."""
    own = {name: value for name, value in vars(numpy.random).items() if getattr(value, "__self__", None) is _NUMPYS}
    thread = threading.get_ident()

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                see(sys._getframe(1))
            return function(*args, **kwargs)

        return call

    vars(numpy.random).update({name: watched(value) for name, value in own.items() if name != "get_state"})
    try:
        yield
    finally:
        vars(numpy.random).update(own)


def _is_of_interest(frame: FrameType) -> bool:
    return is_users(frame) and frame.f_globals.get("__name__", "").split(".")[0] not in ("random", "numpy")
