"""The first line of a file of IR, ``// stage: linalg``: the stage that it is in."""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"//[ \t]*stage:[ \t]*([\w-]+)[^\n]*(\n|$)")


def with_header(stage: str, text: str) -> str:
    """What is written to a file; ``text`` has none yet."""
    return f"// stage: {stage}\n{text.rstrip()}\n"


def headed_stage(text: str) -> str | None:
    """What the first line says; None if it says none."""
    header = _HEADER.match(text)
    return header[1] if header is not None else None


def without_header(text: str) -> str:
    """What follows it."""
    header = _HEADER.match(text)
    return text[header.end() :] if header is not None else text
