"""Loads MLIR, on a thread of its own.

On import it registers its passes, and the constructor of one of them needs 300 KiB of stack: more than a small thread
has (``threading.stack_size``, ``ulimit -s``), which would be a segmentation fault. Later compiles need far less.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from typing import Final

_MODULE: Final = "torch_mlir.ir"
_STACK_BYTES: Final = 8 << 20
_lock = threading.Lock()  # of the size that new threads get


def load_mlir() -> None:
    """Imports MLIR, unless it is imported; must be called before any other import of it. Errors are raised by that
    other import."""
    if _MODULE in sys.modules:
        return
    loader = threading.Thread(target=_import, name="symshape: MLIR", daemon=True)
    with _lock:
        usual = threading.stack_size(_STACK_BYTES)
        try:
            loader.start()
        except RuntimeError:
            return  # there are no more threads, or the interpreter ends: then on the present stack
        finally:
            threading.stack_size(usual)
    loader.join()


def _import() -> None:
    with contextlib.suppress(Exception):
        importlib.import_module(_MODULE)
