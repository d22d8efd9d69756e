"""The line that a terminal shows during a long compile: function, graph, step, seconds.

Before ``PATIENCE`` seconds only a clock is read, at the start of a step: a short compile starts no thread. Afterwards a
thread draws the line until the compile ends, since a single step may take minutes.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from symshape.activity import watched
from symshape.tools.terminal import CLEAR, LINE, may_draw

PATIENCE: Final = 2.0  # seconds without a line
_PERIOD: Final = 0.25  # seconds between two drawings


class _Thread(threading.local):
    compile: _Compile | None = None


_thread = _Thread()


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """While entered, this thread compiles ``what``; "" if other calls name it. Nested calls are parts of the outer
    one."""
    outer = _thread.compile
    if outer is not None:
        with outer.part(what):
            yield
        return
    if not may_draw(sys.stderr):
        yield
        return
    compile_ = _Compile(what, sys.stderr)
    try:
        _thread.compile = compile_
        with watched(compile_.note):
            yield
    finally:
        _thread.compile = None
        compile_.end()


class _Compile:
    """A compile of a thread, with all nested ones."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self.parts, self.step, self.stream = [what], "", stream
        self.started = time.monotonic()
        self._line: _Line | None = None

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        before = self.step
        self.parts.append(what)
        try:
            yield
        finally:
            self.parts.pop()
            self.step = before

    def note(self, step: str) -> None:
        self.step = step or self.step
        if self._line is None and time.monotonic() - self.started > PATIENCE and LINE.acquire(blocking=False):
            line = _Line(self)
            try:
                line.start()
            except RuntimeError:  # no thread can be made: nothing is drawn
                LINE.release()
            else:
                self._line = line

    def end(self) -> None:
        if self._line is not None:
            self._line.ended.set()
            self._line.join()

    def text(self) -> str:
        seconds = int(time.monotonic() - self.started)
        what = ", ".join(part for part in self.parts if part)
        return f"symshape: compiling {what}  {self.step}  {seconds} s"


class _Line(threading.Thread):
    """Draws until the compile has ended. However it ends, the line is removed."""

    def __init__(self, compile_: _Compile) -> None:
        super().__init__(name="symshape: live line", daemon=True)
        self.compile, self.ended = compile_, threading.Event()

    def run(self) -> None:
        stream = self.compile.stream
        try:
            try:
                while not self.ended.is_set():
                    columns = shutil.get_terminal_size().columns
                    stream.write(CLEAR + _fitted(self.compile.text(), columns - 1))
                    stream.flush()
                    self.ended.wait(_PERIOD)
            finally:
                stream.write(CLEAR)
                stream.flush()
        except (OSError, ValueError):
            pass  # the terminal is gone, or the stream closed
        finally:
            LINE.release()


def _fitted(text: str, columns: int) -> str:
    """The text with its middle left out: the subject is at the start, step and seconds at the end."""
    if len(text) <= columns:
        return text
    kept = max(columns - 1, 0)
    return text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]
