"""Terminal output of the tools: progress bar, tables, colours. Falls back to plain text if output is not a terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
# Block characters in steps of an eighth of a cell, so that the bar moves smoothly.
_PARTS = " ▏▎▍▌▋▊▉█"

CLEAR: Final = "\r\x1b[2K"  # erases the cursor's line
LINE: Final = threading.Lock()  # held by whoever redraws a line of the terminal


def is_live(stream: TextIO) -> bool:
    """Whether a stream is a terminal that accepts colours (https://no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def may_draw(stream: TextIO) -> bool:
    """Whether the compiler may draw a progress line there without being asked: on a terminal, in a foreground process,
    and, in distributed runs, by local rank 0 only."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return False
    try:
        return is_live(stream) and not _is_in_background(stream)
    except (AttributeError, ValueError):  # stderr is missing, closed, or replaced by the program
        return False


def _is_in_background(stream: TextIO) -> bool:
    """Whether another process group, such as the shell, is in the terminal's foreground."""
    try:
        return os.tcgetpgrp(stream.fileno()) != os.getpgrp()
    except OSError:  # not this session's controlling terminal: no job control
        return False


def style(text: str, *names: str, stream: TextIO | None = None) -> str:
    """``text`` in the given styles; unchanged if the stream (default: stdout) is not a terminal."""
    if not names or not is_live(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(_STYLES[name] for name in names)}m{text}\x1b[0m"


def width_of(text: str) -> int:
    """Number of visible characters, without escape sequences."""
    return len(_ESCAPE.sub("", text))


class Progress:
    """A progress bar with elapsed time on stderr; if stderr is not a terminal, one line per quarter of the work."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self.title, self.total, self.stream = title, max(total, 1), stream or sys.stderr
        self.done, self.note, self.started, self._quarter = 0, "", time.monotonic(), 0
        self._has_line = False

    def __enter__(self) -> Progress:
        self._has_line = LINE.acquire(blocking=False)
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if is_live(self.stream):
            self.stream.write("\n" if error else CLEAR)
            self.stream.flush()
        if self._has_line:
            LINE.release()

    def say(self, note: str) -> None:
        """Shows what is being done, without advancing the bar."""
        self.note = note
        self._draw()

    def step(self, note: str = "") -> None:
        """Advances the bar by one of ``total`` steps."""
        self.done += 1
        self.note = note or self.note
        self._draw()

    def _draw(self) -> None:
        share = min(self.done / self.total, 1.0)
        if not is_live(self.stream):
            quarter = int(share * 4)
            if quarter > self._quarter:
                self._quarter = quarter
                print(f"{self.title}: {self.done}/{self.total} {self._elapsed()}", file=self.stream, flush=True)
            return
        columns = shutil.get_terminal_size().columns
        size = max(min(30, columns - 50), 8)
        full, part = divmod(int(share * size * 8), 8)
        bar = ("█" * full + (_PARTS[part] if full < size else "")).ljust(size)
        head = f"{self.title} "
        counts = f" {self.done}/{self.total} {self._elapsed()} "
        note = self.note[: max(columns - len(head) - size - len(counts) - 3, 0)]
        painted = style(bar, "cyan", stream=self.stream), style(note, "dim", stream=self.stream)
        self.stream.write(f"{CLEAR}{head}▕{painted[0]}▏{counts}{painted[1]}")
        self.stream.flush()

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        return f"{minutes}:{seconds:02d}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, stream: TextIO | None = None) -> str:
    """A text table with a rule below the header. Columns of numbers are right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    columns = range(len(header))
    widths = [max([len(header[i]), *(width_of(row[i]) for row in cells)]) for i in columns]
    right = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in columns]

    def line(row: Sequence[str]) -> str:
        padded = []
        for i in columns:
            space = " " * (widths[i] - width_of(row[i]))
            padded.append(space + row[i] if right[i] else row[i] + space)
        return "  ".join(padded).rstrip()

    heading = style(line(header), "bold", stream=stream)
    rule = style(_rule(stream or sys.stdout) * (sum(widths) + 2 * (len(widths) - 1)), "dim", stream=stream)
    return "\n".join([heading, rule, *(line(row) for row in cells)])


def _rule(stream: TextIO) -> str:
    """The character of a horizontal rule that the stream's encoding has."""
    try:
        "─".encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "─"


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    plain = _ESCAPE.sub("", text).strip()
    return plain in ("", "-", "–") or bool(re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?\s?[%x×]?", plain))


def heading(text: str, stream: TextIO | None = None) -> str:
    return "\n" + style(text, "bold", "cyan", stream=stream)
