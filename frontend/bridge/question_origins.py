"""Who asked what a guard is for: the user's line, and the framework's.

The user's code is all that is outside of PyTorch and symshape: libraries of models too.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx import traceback as node_meta

_TORCH = os.path.dirname(torch.__file__) + os.sep
_DYNAMO = os.path.join(_TORCH, "_dynamo") + os.sep
_OURS = str(Path(__file__).absolute().parents[2]) + os.sep
_STACK_LINE = re.compile(r'File "(.+?)", line (\d+)')


@dataclass(frozen=True)
class Line:
    file: str
    number: int

    @property
    def text(self) -> str:
        """What stands there; "" if it cannot be read."""
        return linecache.getline(self.file, self.number).strip()

    @property
    def owner(self) -> str:
        """ "torch", "symshape", or "" for the user's."""
        return "torch" if self.file.startswith(_TORCH) else "symshape" if self.file.startswith(_OURS) else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Origin:
    """``user``: the innermost line of the user's that was traced; ``asked``: that of the framework, if it is known."""

    user: Line | None = None
    asked: Line | None = None

    @property
    def is_by_python(self) -> bool:
        """Whether the user's Python itself asked, which Dynamo runs, not an operator that it calls."""
        return self.user is not None and (self.asked is None or self.asked.file.startswith(_DYNAMO))


def users_line(frames: Iterable[Any]) -> Line | None:
    """The innermost of the user's among frames, the outermost first."""
    lines = (Line(frame.filename, int(frame.lineno or 0)) for frame in reversed(list(frames)))
    return next((line for line in lines if not line.owner), None)


def users_line_now() -> Line | None:
    """The innermost line of the user's that is being traced: by Dynamo, or of the node that is traced again."""
    found = users_line(TracingContext.extract_stack() or ())
    if found is not None:
        return found
    lines = [
        Line(file, int(n)) for file, n in _STACK_LINE.findall(node_meta.get_current_meta().get("stack_trace") or "")
    ]
    return next((line for line in reversed(lines) if not line.owner), None)


def origin_of(sloc: Any) -> Origin:
    """Of a guard that is about to be made, with the location that the environment gives it."""
    frame: Any = getattr(sloc, "framework_loc", None)
    asked = Line(frame.filename, int(frame.lineno or 0)) if hasattr(frame, "filename") else None
    return Origin(users_line_now(), asked)
