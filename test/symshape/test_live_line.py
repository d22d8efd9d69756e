"""The line of a long compile on a terminal, and what a compile adds to PyTorch's trace."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest
import torch

import symshape
from symshape import compiler, live_line
from symshape.activity import note
from symshape.live_line import compiling
from symshape.passes.stages import STAGES
from symshape.tools.terminal import CLEAR, LINE, Progress, may_draw


@dataclass
class Terminal:
    """A pseudo terminal: ``stream`` is what a program writes to, ``shown()`` what has come so far."""

    stream: TextIO
    master: int
    text: str = ""

    def shown(self) -> str:
        os.set_blocking(self.master, False)
        try:
            while got := os.read(self.master, 65536):
                self.text += got.decode()
        except BlockingIOError:
            pass
        return self.text

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + 10
        while words not in self.shown():
            assert time.monotonic() < end, self.text
            time.sleep(0.01)

    def is_erased(self) -> bool:
        return self.shown().endswith(CLEAR)


@pytest.fixture
def term(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    with open(slave, "w") as stream:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        # pytest puts its own sys.stderr back before the test begins
        monkeypatch.setattr(live_line, "sys", SimpleNamespace(stderr=stream))
        monkeypatch.setattr(live_line, "PATIENCE", 0.0)
        monkeypatch.setattr(live_line, "_PERIOD", 0.01)
        yield Terminal(stream, master)
    os.close(master)
    assert not LINE.locked()
    assert not [thread for thread in threading.enumerate() if thread.name == "symshape: live line"]


def test_a_long_compile_shows_stage_graph_and_seconds(term: Terminal) -> None:
    with compiling("forward (model.py:3)"):
        note("trace")
        term.wait_for("symshape: compiling forward (model.py:3)  trace  0 s")
        with compiling("backward graph"):
            note("fuse-kernels")
            note()  # goes on with it
            term.wait_for("symshape: compiling forward (model.py:3), backward graph  fuse-kernels  0 s")
        term.wait_for("forward (model.py:3)  trace")
    assert term.is_erased()


def test_a_short_compile_has_neither_line_nor_thread(term: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "PATIENCE", 60.0)
    before = threading.active_count()
    with compiling("forward"):
        for _ in range(100):
            note("step")
            assert threading.active_count() == before
    assert term.shown() == ""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_a_compile_leaves_no_line(term: Terminal, error: type[BaseException]) -> None:
    with pytest.raises(error), compiling("forward"), compiling("graph"):
        note("step")
        term.wait_for("graph")
        raise error
    assert term.is_erased()
    note("later")  # nobody watches
    assert term.is_erased()


def test_a_terminal_that_goes_away_is_no_error(term: Terminal) -> None:
    with compiling("forward"):
        note("step")
        term.wait_for("step")
        term.stream.close()


def test_of_two_threads_one_draws(term: Terminal) -> None:
    others = threading.Event()

    def other() -> None:
        with compiling("another thread"):
            for _ in range(20):
                note("step")
                time.sleep(0.005)
        others.set()

    with compiling("forward"):
        note("step")
        term.wait_for("forward")
        thread = threading.Thread(target=other)
        thread.start()
        assert others.wait(10)
        thread.join()
    assert "another thread" not in term.shown()
    assert term.is_erased()


def test_a_progress_bar_keeps_the_line_to_itself(term: Terminal) -> None:
    with Progress("ablation", 3, term.stream) as progress, compiling("forward"):
        note("step")
        time.sleep(0.05)
        progress.step()
    assert "compiling" not in term.shown()
    with compiling("forward"):
        note("step")
        term.wait_for("compiling")


def test_a_long_line_keeps_both_ends(term: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with compiling("x" * 100):
        note("fuse")
        term.wait_for("fuse  0 s")
    drawn = term.shown().split(CLEAR)[1]
    assert len(drawn) == 39 and drawn.startswith("symshape: compiling")


def test_nothing_is_drawn_elsewhere(monkeypatch: pytest.MonkeyPatch, term: Terminal) -> None:
    assert may_draw(term.stream)
    assert not may_draw(io.StringIO())
    assert not may_draw(None)  # type: ignore[arg-type]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not may_draw(term.stream)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert may_draw(term.stream)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)  # another job is in the foreground
    assert not may_draw(term.stream)


# --- a whole process ------------------------------------------------------------------------------------------------

_PROGRAM = """
import torch
import symshape
from symshape import live_line

live_line.PATIENCE = 0.0

def forward(x, w):
    return torch.softmax(x @ w, -1).sum(0) + x.size(0)

compiled = symshape.compile(forward, options={"cache": False})
compiled(torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)).sum().backward()
entry = symshape.jit(lambda x: x.sin() + 1)
entry(torch.randn(3))
"""


def _run(folder: Path, stderr: int) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment |= {"TORCH_TRACE": str(folder / "trace"), "TERM": "xterm"}
    (folder / "program.py").write_text(_PROGRAM)
    done = subprocess.run([sys.executable, folder / "program.py"], env=environment, stderr=stderr, timeout=120)
    assert done.returncode == 0
    (file,) = (folder / "trace").glob("*.log")
    return file.read_text()


def _artifacts(log: str) -> list[tuple[str, dict[str, object], str]]:
    """(name, entry, payload) of ours, in order."""
    found: list[tuple[str, dict[str, object], list[str]]] = []
    for line in log.splitlines():
        if line.startswith("\t"):
            found[-1][2].append(line[1:])
            continue
        entry = json.loads(line[line.index("{") :])
        found.append((entry.get("artifact", {}).get("name", ""), entry, []))
    return [(name, entry, "\n".join(payload)) for name, entry, payload in found if name.startswith("symshape_")]


@pytest.mark.long
def test_a_process_shows_the_line_and_writes_the_trace(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while got := os.read(master, 65536):
                chunks.append(got)
        except OSError:
            pass

    reader = threading.Thread(target=read)
    reader.start()
    log = _run(tmp_path, slave)
    os.close(slave)
    reader.join()
    os.close(master)
    shown = b"".join(chunks).decode()
    assert "symshape: compiling forward (program.py:8)" in shown
    assert "compiling <lambda> (program.py:" in shown
    assert shown.endswith(CLEAR)

    artifacts = _artifacts(log)
    stages = [f"symshape_ir_{stage}" for stage in STAGES]
    expected = ["symshape_options", "symshape_graph", *stages, "symshape_program", "symshape_guard_stub"]
    assert [name for name, _, _ in artifacts] == expected * 3  # forward, backward, and that of the jitted function
    texts = {name: text for name, _, text in artifacts[: len(expected)]}
    assert all(text for text in texts.values())
    assert all("frame_id" in entry for _, entry, _ in artifacts[: len(expected)])
    assert "aten._softmax" in texts["symshape_graph"] or "aten.exp" in texts["symshape_graph"]
    assert texts["symshape_ir_linalg"].startswith("// stage: linalg\n")
    assert "def program" in texts["symshape_program"] and "kernel_0" in texts["symshape_program"]


class _Trace(logging.Handler):
    """Takes what PyTorch would write."""

    def __init__(self) -> None:
        super().__init__()
        self.artifacts: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        about = getattr(record, "metadata", {}).get("artifact", {})
        self.artifacts[about.get("name", "")] = getattr(record, "payload", "") or ""


def test_a_trace_has_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = _Trace()
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [trace])
    symshape.compile(lambda x: x.tan() + 4, options={"cache": False})(torch.ones(3))
    stages = {f"symshape_ir_{stage}" for stage in STAGES}
    found = {name for name in trace.artifacts if name.startswith("symshape_")}
    assert found == stages | {"symshape_options", "symshape_graph", "symshape_program", "symshape_guard_stub"}
    assert "aten.tan" in trace.artifacts["symshape_graph"]
    assert trace.artifacts["symshape_ir_linalg"].startswith("// stage: linalg\n")


def test_nothing_is_rendered_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def rendered(*_: object, **__: object) -> str:
        raise AssertionError("a text was rendered")

    # PyTorch takes its handler away at the first entry of a process, which may be one of this test
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [])
    monkeypatch.setattr(torch.fx.GraphModule, "print_readable", rendered)
    monkeypatch.setattr(compiler, "text_of", rendered)
    functions: list[Callable[..., torch.Tensor]] = [
        symshape.compile(lambda x: x.cos() + 2, options={"cache": False}),
        symshape.jit(lambda x: x.cos() + 3, options={"cache": False}),
    ]
    for function in functions:
        assert function(torch.zeros(3)).shape == (3,)
