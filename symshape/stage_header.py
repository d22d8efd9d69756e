"""The first line of an IR file, which names its stage: ``// stage: linalg``."""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"//[ \t]*stage:[ \t]*([\w-]+)[^\n]*(\n|$)")


def with_header(stage: str, text: str) -> str:
    """The text of a file with a header; ``text`` has none yet."""
    return f"// stage: {stage}\n{text.rstrip()}\n"


def headed_stage(text: str) -> str | None:
    """The stage that the first line names; None if it names none."""
    header = _HEADER.match(text)
    return header[1] if header is not None else None


def without_header(text: str) -> str:
    """The text without its header."""
    header = _HEADER.match(text)
    return text[header.end() :] if header is not None else text
