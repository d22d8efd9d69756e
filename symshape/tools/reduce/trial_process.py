"""Runs compiled programs in another process, so that a crash does not end the reduction.

The process imports the compiler once and forks. The fork tries one module after another; when it dies, its parent
reports the signal or exit status and forks again, which takes milliseconds.
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
_BEGUN: Final = "begun"  # sent by a fork before it tries a module
_SAID: Final = 4000  # number of characters shown of a dead process's output


@dataclass(frozen=True)
class Trial:
    """The arguments of `WrongNumbers`, picklable. ``passes``: pipeline elements that run first; ``options``: options of
    the compiler."""

    passes: tuple[str, ...]
    pass_files: tuple[str, ...]
    factor: float
    stage: str
    options: dict[str, Any] = field(default_factory=dict)


class TrialProcess:
    """A check that runs `WrongNumbers` in another process. A crash of that process counts as a failure too."""

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
            start_new_session=True,  # Ctrl-C must reach only the reduction, which then kills this process group
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
            raise CompileError(
                f"the process that tries programs has ended: {self._said(before)}",
                next_step="start again: each smaller program has been written to the output file",
            )
        if not isinstance(found, int):
            failure: Failure | None = found[0]
            return failure
        name = signal.Signals(found).name if found > 0 else f"exit status {-found}"
        return Failure(f"died of {name}", f"error: the process died of {name}\n{self._said(before)}")

    def _said(self, start: int) -> str:
        """The end of what the process has written to stderr since position ``start``."""
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
    """The next message; None at the end of the stream."""
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
    """A forked process that tries one module after another until it dies."""

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
        """Sends a module; returns whether the fork begins to try it. It may have died after its last answer, if a
        program corrupted its memory."""
        try:
            _send(self._requests, text)
        except BrokenPipeError:
            return False
        return bool(_receive(self._answers) == _BEGUN)

    def answer(self) -> Any:
        """The result for the current module; None if the fork dies."""
        return _receive(self._answers)

    def end(self) -> int:
        """Waits for the fork to end. Returns its signal if it was killed, else its exit status, negated."""
        os.close(self._requests)
        os.close(self._answers)
        _, status = os.waitpid(self._pid, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def _fork_again_and_again(requests: int, answers: int) -> NoReturn:
    """The parent process: imports everything, forks, and never runs a program itself, so that forks start intact."""
    from symshape.tools.reduce import wrong_numbers  # noqa: F401 - imported before forking

    trial, others = _receive(requests), (requests, answers)
    fork = _Fork(trial, others)
    while (text := _receive(requests)) is not None:
        if not fork.takes(text):
            fork.end()
            fork = _Fork(trial, others)
            if not fork.takes(text):
                sys.exit(fork.end())  # even a new fork dies before it tries anything
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
