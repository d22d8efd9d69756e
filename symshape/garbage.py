"""Pauses Python's cyclic garbage collector while a function is traced and compiled.

Both make hundreds of thousands of objects (nodes, fake tensors, views of IR, expressions) that live until the end, so
that the collector starts again and again and finds next to nothing: one full collection walks all that PyTorch and the
user's program hold. A fifth of a first call was that. Afterwards reference counts free most of them.
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
    """No automatic collection in here, in any thread. Where the program has switched the collector off, it stays so."""
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
