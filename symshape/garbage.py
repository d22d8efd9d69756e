"""Pauses Python's cyclic garbage collector while a function is traced and compiled.

Both create hundreds of thousands of objects (nodes, fake tensors, views of IR, expressions) that live until the end, so
that the collector runs again and again without result: each full collection traverses all objects of PyTorch and the
user's program. That was a fifth of a first call. Reference counting frees most of them afterwards.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = 0  # compiles that run; the first switches the collector off, the last one on again


@contextmanager
def collected_later() -> Iterator[None]:
    """While entered, there is no automatic collection, in any thread. If the program has disabled the collector, it
    stays disabled."""
    global _waiting
    with _lock:
        ours = _waiting > 0 or gc.isenabled()
        if ours:
            _waiting += 1
            gc.disable()
    try:
        yield
    finally:
        if ours:
            with _lock:
                _waiting -= 1
                if not _waiting:
                    gc.enable()
