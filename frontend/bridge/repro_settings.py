"""PyTorch's settings for repro files (``TORCHDYNAMO_REPRO_AFTER``, ``TORCHDYNAMO_REPRO_LEVEL``)."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch._dynamo.config


def repro_after() -> str | None:
    """ "dynamo": files of Dynamo's graphs; "aot": of those that AOTAutograd made; None: none."""
    after: str | None = torch._dynamo.config.repro_after
    return after


def repro_level() -> int:
    """1 and 2: of what fails; 3: of all, before it is compiled; 4: of what computes other numbers than eager mode."""
    return int(torch._dynamo.config.repro_level)


def without_repro() -> AbstractContextManager[Any]:
    """While entered, PyTorch writes no repro files."""
    patched: AbstractContextManager[Any] = torch._dynamo.config.patch(repro_after=None)
    return patched


def repro_folder() -> Path:
    """The folder of PyTorch's own repro files; it is created."""
    from torch._dynamo.debug_utils import minifier_dir

    return Path(minifier_dir())


_traced: list[weakref.ref[Any]] = []  # the last context that a graph was compiled under


def is_compiled_again() -> bool:
    """Whether this is the second compile of what Dynamo has traced: to compare numbers PyTorch compiles a graph once
    more, while it is still traced."""
    context = torch._guards.TracingContext.try_get()
    again = context is not None and any(one() is context for one in _traced)
    _traced[:] = [weakref.ref(context)] if context is not None else []
    return again


def python_text(size: int | torch.SymInt) -> int | str:
    """A size as Python source over the names of symbols."""
    from torch.utils._sympy.printers import PythonPrinter

    if not isinstance(size, torch.SymInt):
        return int(size)
    expr = size.node.expr
    return int(expr) if expr.is_number else str(PythonPrinter().doprint(expr))
