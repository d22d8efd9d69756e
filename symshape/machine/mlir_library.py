"""Loads MLIR, on a thread of its own.

When it is imported it registers its passes, and the constructor of one of them takes 300 KiB of stack: more than a
small thread has (``threading.stack_size``, ``ulimit -s``), and a stack that ends is a segmentation fault. Nothing that
is compiled later comes near that.
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
    """Imports MLIR, if nobody has; to be called before an import that would. What goes wrong is raised by that one."""
    if _MODULE in sys.modules:
        return
    loader = threading.Thread(target=_import, name="symshape: MLIR", daemon=True)
    with _lock:
        usual = threading.stack_size(_STACK_BYTES)
        try:
            loader.start()
        except RuntimeError:
            return  # there are no more threads, or the interpreter ends: then on the stack at hand
        finally:
            threading.stack_size(usual)
    loader.join()


def _import() -> None:
    with contextlib.suppress(Exception):
        importlib.import_module(_MODULE)
