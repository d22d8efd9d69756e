"""Where tests expect errors to point."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def line(fn: Callable[..., Any], text: str) -> str:
    """``file:line`` of the line of a function that contains a text."""
    lines, start = inspect.getsourcelines(fn)
    return f"{inspect.getsourcefile(fn)}:{start + next(i for i, one in enumerate(lines) if text in one)}"
