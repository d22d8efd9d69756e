"""The user's source lines that the tracer attributes to guards."""

from __future__ import annotations

import functools
import glob
import linecache
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.fx import traceback as node_meta

_USER_LOCATION = re.compile(r"(.*?)\s*# (?!.*  # )(.+):(\d+) in \S+$")


def user_frame(sloc: Any) -> tuple[str, int]:
    """File and line of a guard's origin: the user's line if there is one, else the framework's. For a guard of
    ``add_guard``, the given origin, with line 0 if it has none."""
    match = _USER_LOCATION.match(str(getattr(sloc, "maybe_user_loc", None) or ""))
    if match:
        text, name, line = match.groups()
        return whole_file_name(name, int(line), text), int(line)
    frame: Any = getattr(sloc, "framework_loc", None)
    if hasattr(frame, "filename"):
        return frame.filename, int(frame.lineno or 0)
    if isinstance(frame, str):
        file, _, number = frame.rpartition(":")
        return (file, int(number)) if number.isdigit() else (frame, 0)
    return "", 0


@functools.lru_cache(maxsize=1024)
def whole_file_name(name: str, line: int, text: str) -> str:
    """The absolute name of a file. The tracer prints it without the folders that it shares with torch's own (if that is
    only the root: without its first letter too); the text of the line tells which file it is."""
    shared = [str(folder / name) for folder in Path(torch.__file__).parents]
    for file in (*shared, *glob.glob("/?" + glob.escape(name))):
        if linecache.getline(file, line).strip() == text.strip():
            return file
    return name


def user_frame_now() -> Any:
    """The innermost frame that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None and not is_users(frame):
        frame = frame.f_back  # type: ignore[assignment]
    return frame


def user_line_now() -> str:
    """``file:line`` of the innermost frame of user code; "" if there is none."""
    frame = user_frame_now()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


_NOT_THE_USERS = frozenset({"torch", "symshape", "contextlib", "functools"})


def user_line(error: BaseException) -> str:
    """``file:line`` of the innermost frame of user code in an error's traceback; "" if there is none."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if is_users(frame)]
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""


def is_users(frame: Any) -> bool:
    return frame.f_globals.get("__name__", "").split(".")[0] not in _NOT_THE_USERS


def traced_line_now() -> str:
    """``file:line`` of the user's innermost frame that is being traced; "" if that is unknown."""
    from torch._guards import TracingContext

    frames = [f for f in TracingContext.extract_stack() or () if not is_of_torch(f.filename)]
    if not frames:
        lines = lines_of_node_now()
        return f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""
    return f"{frames[-1].filename}:{frames[-1].lineno}"


def lines_of_node_now() -> list[tuple[str, int]]:
    """(file, line) of each frame that made the node that is being traced again, the innermost last; none where no node
    is."""
    found = _STACK_LINE.findall(node_meta.get_current_meta().get("stack_trace") or "")
    return [(file, int(line)) for file, line in found]


def is_of_torch(file: str) -> bool:
    """Whether a file is PyTorch's."""
    return file.startswith(_TORCH_FOLDER)


_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep


_STACK_LINE = re.compile(r'File "(.+?)", line (\d+)')
