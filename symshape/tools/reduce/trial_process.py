"""Compiled programs are tried in another process: one that ends it ends no reduction.

The process imports the compiler once, and forks. The fork tries one module after another; where it dies, its parent
says of what, and forks again, which takes milliseconds.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final, NoReturn

from torch_mlir import ir

from symshape.errors import CompileError
from symshape.ir_text import text_of
from symshape.tools.reduce.failing_checks import Failure

_LENGTH: Final = struct.Struct("!Q")
_BEGUN: Final = "begun"  # what a fork says before it tries a module
_SAID: Final = 4000  # characters of what a process that died has said


@dataclass(frozen=True)
class Trial:
    """``WrongNumbers`` as text: ``passes``: pipeline elements that run first; ``options``: those of the compiler."""

    passes: tuple[str, ...]
    pass_files: tuple[str, ...]
    factor: float
    stage: str
    options: dict[str, Any] = field(default_factory=dict)


class TrialProcess:
    """The check: what is tried in another process. Its death is a failure as well, of a kind of its own."""

    def __init__(self, trial: Trial) -> None:
        request, self._requests = os.pipe()
        self._answers, answer = os.pipe()
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        words = [sys.executable, "-m", __name__, str(request), str(answer)]
        self._process = subprocess.Popen(
            words,
            pass_fds=(request, answer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # an interrupt is for the reduction, which then ends this
        )
        os.close(request)
        os.close(answer)
        _send(self._requests, trial)

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._requests)
        os.close(self._answers)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._errors.close()

    def __call__(self, module: ir.Module) -> Failure | None:
        before = self._errors.seek(0, os.SEEK_END)
        _send(self._requests, text_of(module))
        found = _receive(self._answers)
        if found is None:
            raise CompileError(f"the process that tries programs has ended: {self._said(before)}")
        if not isinstance(found, int):
            failure: Failure | None = found[0]
            return failure
        name = signal.Signals(found).name if found > 0 else f"exit status {-found}"
        return Failure(f"died of {name}", f"error: the process died of {name}\n{self._said(before)}")

    def _said(self, start: int) -> str:
        """The last that it has said since then."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(start, end - _SAID))
        return self._errors.read().decode(errors="replace")


# --- messages -----------------------------------------------------------------------------------------------------


def _send(fd: int, value: Any) -> None:
    data = pickle.dumps(value)
    data = _LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _receive(fd: int) -> Any:
    """None at the end."""
    head = _read(fd, _LENGTH.size)
    return None if head is None else pickle.loads(_read(fd, *_LENGTH.unpack(head)) or b"N.")


def _read(fd: int, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        got = os.read(fd, count - len(parts))
        if not got:
            return None
        parts += got
    return parts


# --- the other process --------------------------------------------------------------------------------------------


class _Fork:
    """Tries one module after another, until it dies."""

    def __init__(self, trial: Trial, others: Sequence[int]) -> None:
        request, self._requests = os.pipe()
        self._answers, answer = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            for one in (self._requests, self._answers, *others):
                os.close(one)
            _try_each(trial, request, answer)
        os.close(request)
        os.close(answer)

    def takes(self, text: str) -> bool:
        """Whether it begins with a module: it may have died after its last answer, of memory that a program spoiled."""
        try:
            _send(self._requests, text)
        except BrokenPipeError:
            return False
        return bool(_receive(self._answers) == _BEGUN)

    def answer(self) -> Any:
        """None where it dies."""
        return _receive(self._answers)

    def end(self) -> int:
        """What it died of: a signal, or less than 1, an exit status."""
        os.close(self._requests)
        os.close(self._answers)
        _, status = os.waitpid(self._pid, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def _fork_again_and_again(requests: int, answers: int) -> NoReturn:
    """Of the process that has imported all, and runs nothing itself: its forks are whole."""
    from symshape.tools.reduce import wrong_numbers  # noqa: F401 - what a fork needs is there already

    trial, others = _receive(requests), (requests, answers)
    fork = _Fork(trial, others)
    while (text := _receive(requests)) is not None:
        if not fork.takes(text):
            fork.end()
            fork = _Fork(trial, others)
            if not fork.takes(text):
                sys.exit(fork.end())  # a new one dies before it tries anything
        found = fork.answer()
        if found is None:
            found = fork.end()
            fork = _Fork(trial, others)
        _send(answers, found)
    fork.end()
    sys.exit(0)


def _try_each(trial: Trial, requests: int, answers: int) -> NoReturn:
    from symshape import dialects
    from symshape.ir_text import parse_module
    from symshape.options import Options
    from symshape.passes.framework import registry
    from symshape.passes.framework.diagnostics import collect_diagnostics
    from symshape.passes.framework.pipeline_text import parse_pipeline
    from symshape.tools.reduce.wrong_numbers import WrongNumbers

    for file in trial.pass_files:
        registry.load_pass_file(file)
    steps = [step for element in trial.passes for step in parse_pipeline(element)]
    check = WrongNumbers(steps, trial.factor, trial.stage, Options.parse(trial.options))
    while (text := _receive(requests)) is not None:
        _send(answers, _BEGUN)
        context = dialects.load(ir.Context())
        with context, ir.Location.unknown(), collect_diagnostics(context):
            found = check(parse_module(text, context, "the module"))
        _send(answers, (found,))
    sys.exit(0)


if __name__ == "__main__":
    _fork_again_and_again(int(sys.argv[1]), int(sys.argv[2]))
