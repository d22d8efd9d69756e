"""Rejects draws from the modules ``random`` and ``numpy.random`` while a function is traced without Dynamo.

The trace would draw them once, as constants of the entry; calls that seed the modules would run once too.
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

# The generator behind the functions of the module.
_PYTHONS: Any = random.random.__self__  # type: ignore[attr-defined]


def refusing_draws(run: Callable[[], Any]) -> Any:
    """Runs ``run`` and returns its result. CompileError at the user's line, with the modules' states restored, if it
    has drawn; draws of other threads are not affected."""
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
    return {"random": random.getstate(), "numpy.random": numpy.random.get_state(legacy=False)}


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    numpy.random.set_state(states["numpy.random"])


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The module whose state is another; "" if none is."""
    if before["random"] != after["random"]:
        return "random"
    return "" if _equal(before["numpy.random"], after["numpy.random"]) else "numpy.random"


def _equal(ours: Any, theirs: Any) -> bool:
    """Whether two states of NumPy's generators are equal: nested dictionaries of numbers and arrays."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_equal(ours[key], theirs[key]) for key in ours)
    return numpy.array_equal(ours, theirs)


def _draw_of_this_thread(run: Callable[[], Any]) -> tuple[str, str]:
    """The module and the user's ``file:line`` of a draw: ``run`` is run again, with calls of the modules' generators
    observed. ("", "") if there is none."""
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
    """Calls ``see`` for each number that this thread draws from NumPy's global generator, and when it seeds that, under
    any name: profilers do not see NumPy's methods."""
    own = numpy.random.get_bit_generator()  # type: ignore[attr-defined]
    thread: int | None = None

    def note() -> None:
        if threading.get_ident() == thread:
            see(sys._getframe(2))

    _exchange(_watching(own, note))
    thread = threading.get_ident()
    try:
        yield
    finally:
        thread = None
        _exchange(own)


def _watching(own: Any, note: Callable[[], None]) -> Any:
    """A bit generator that draws the same numbers as ``own``, and calls ``note`` before: when its lock is taken, or its
    state is set."""

    class Lock:
        def __enter__(self) -> None:
            note()
            own.lock.acquire()

        def __exit__(self, *_: object) -> None:
            own.lock.release()

    class Watching(type(own)):  # type: ignore[misc]  # NumPy tests the class of a generator that it seeds
        capsule, lock = own.capsule, Lock()

        @property
        def state(self) -> Any:
            return own.state

        @state.setter
        def state(self, value: Any) -> None:
            note()
            own.state = value

        def _legacy_seeding(self, seed: Any) -> None:
            note()
            own._legacy_seeding(seed)

    return Watching(0)


def _exchange(generator: Any) -> None:
    """Makes NumPy's functions draw by another bit generator of the same state."""
    state = numpy.random.get_state(legacy=False)
    numpy.random.set_bit_generator(generator)  # type: ignore[attr-defined]
    numpy.random.set_state(state)  # the other one of a pair of normal numbers would be forgotten


def _is_of_interest(frame: FrameType) -> bool:
    return is_users(frame) and frame.f_globals.get("__name__", "").split(".")[0] not in ("random", "numpy")
