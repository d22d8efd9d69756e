"""The current compile step of each thread, for observers (the live line).

Usually there is no observer, and a note costs one attribute lookup. ``symshape/live_line.py`` is the only observer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watcher = Callable[[str], None]  # takes the name of a step that begins; "" where the one before goes on


class _Thread(threading.local):
    watcher: Watcher | None = None


_thread = _Thread()


def note(step: str = "") -> None:
    """Notes the start of a step. Without a name (for code that runs often), the step continues."""
    if _thread.watcher is not None:
        _thread.watcher(step)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """The notes of this thread go to ``watcher``."""
    before, _thread.watcher = _thread.watcher, watcher
    try:
        yield
    finally:
        _thread.watcher = before
