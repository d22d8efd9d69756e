"""The current compile step of each thread, which watchers (the live line) are told.

Nobody watches as a rule, and a note is then one look at an attribute. ``symshape/live_line.py`` is the one who does.
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
    """A step begins. Without a name, as code says that is called often: what has begun goes on."""
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
