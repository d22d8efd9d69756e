"""Lines of user code that a page shows, read from their files and highlighted, each once."""

from __future__ import annotations

import linecache
import os
from pathlib import Path
from typing import Any

from symshape.tools.html_report.libraries import library

_PACKAGES = ("site-packages", "dist-packages")


def short_name(file: str) -> str:
    """A short path: relative to an installed package or to the current folder if inside, else its last two parts."""
    parts = Path(file).parts
    for folder in _PACKAGES:
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1 :])
    relative = os.path.relpath(file) if Path(file).is_absolute() else file
    return "/".join(parts[-2:]) if relative.startswith("..") else relative


class Highlighter:
    """Converts Python source to HTML spans with the classes of pygments."""

    def __init__(self) -> None:
        self._highlight = library("pygments").highlight
        self._lexer = library("pygments.lexers.python").PythonLexer(stripnl=False)
        self._formatter = library("pygments.formatters.html").HtmlFormatter(nowrap=True)

    def __call__(self, text: str) -> str:
        return str(self._highlight(text, self._lexer, self._formatter)).rstrip("\n")


class SourceLines:
    """Numbers lines of code (``file:line``) in the order in which they are first asked for. ``rows`` has their HTML."""

    def __init__(self, highlighter: Highlighter) -> None:
        self._highlight = highlighter
        self._numbers: dict[tuple[str, int], int] = {}
        self.rows: list[dict[str, Any]] = []

    def number(self, file: str, line: int) -> int:
        """The number of a line; a new line is read and highlighted."""
        found = self._numbers.get((file, line))
        if found is None:
            found = self._numbers[file, line] = len(self.rows)
            text = linecache.getline(file, line).strip()
            self.rows.append({"where": f"{short_name(file)}:{line}", "html": self._highlight(text) if text else ""})
        return found

    def shown(self, location: str) -> dict[str, Any] | None:
        """The row of a location ``file:line``; None for other text."""
        file, _, line = location.partition("\n")[0].rpartition(":")
        return self.rows[self.number(file, int(line))] if file and line.isdigit() else None
