"""Lines of the user's program: those that the tracer gives to guards."""

from __future__ import annotations

import functools
import glob
import linecache
import re
from pathlib import Path
from typing import Any

import torch

_USER_LOCATION = re.compile(r"(.*?)\s*# (?!.*  # )(.+):(\d+) in \S+$")


def user_frame(sloc: Any) -> tuple[str, int]:
    """File and line of a guard's origin: the user's line where one exists, else the framework's. Where ``add_guard``
    was told the origin it is that, with line 0 if there is none in it."""
    match = _USER_LOCATION.match(str(getattr(sloc, "maybe_user_loc", None) or ""))
    if match:
        text, name, line = match.groups()
        return _whole_file_name(name, int(line), text), int(line)
    frame: Any = getattr(sloc, "framework_loc", None)
    if hasattr(frame, "filename"):
        return frame.filename, int(frame.lineno or 0)
    if isinstance(frame, str):
        file, _, number = frame.rpartition(":")
        return (file, int(number)) if number.isdigit() else (frame, 0)
    return "", 0


@functools.lru_cache(maxsize=1024)
def _whole_file_name(name: str, line: int, text: str) -> str:
    """The tracer shows a file without the folders that it shares with torch's own (where that is only the root: without
    its first letter as well). The line's text tells which file was meant."""
    shared = [str(folder / name) for folder in Path(torch.__file__).parents]
    for file in (*shared, *glob.glob("/?" + glob.escape(name))):
        if linecache.getline(file, line).strip() == text.strip():
            return file
    return name
