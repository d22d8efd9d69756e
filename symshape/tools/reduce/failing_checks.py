"""The checks of a reduction, which say whether a module still fails. The failure of the input defines what counts."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torch_mlir import ir

from symshape.errors import OptionError
from symshape.ir_text import text_of
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import PassFailure, run_pipeline
from symshape.passes.framework.pipeline_text import Step
from symshape.stage_header import with_header


@dataclass(frozen=True)
class Failure:
    """A failure. ``kind``: exit status, the name of a pass, or the type of an error. ``output``: the full message."""

    kind: str
    output: str


NOT_COMPARED: Final = "not compared"  # the kind for modules that could not be checked: neither failure nor success
_NO_FAILURE: Final = (
    "run the check on it, with all its options; a pass may meet nothing that it changes in this stage "
    "(--passes runs it where a compile does)"
)
Observe = Callable[[ir.Module], Failure | None]  # None: the module does not fail


class SameFailure:
    """The check whether a module fails as the input does: with the same kind, and an output in which ``match`` (a
    regular expression) is found. The default is the input's error line with names and numbers as wildcards.

    OptionError if the input does not fail, or not with ``match``.
    """

    def __init__(self, observe: Observe, module: ir.Module, match: str = "") -> None:
        self.observe = observe
        first = observe(module)
        if first is None or first.kind == NOT_COMPARED:
            if first is not None:
                raise OptionError(
                    f"the input cannot be compared: {first.output}",
                    next_step="--wrong runs each call by PyTorch; for another failure give passes or a command",
                )
            raise OptionError("the input does not fail", next_step=_NO_FAILURE)
        self.failure = first
        self.pattern = re.compile(match or pattern_of(error_line(first.output)))
        if not self.pattern.search(first.output):
            raise OptionError(
                f"what the input fails with does not match '{match}': {error_line(first.output)}",
                next_step="give another regular expression, or leave it out",
            )

    def fails(self, module: ir.Module) -> bool:
        found = self.observe(module)
        return found is not None and found.kind == self.failure.kind and bool(self.pattern.search(found.output))


_EXCEPTION = re.compile(r"^(?:[\w.]*(?:Error|Exception|Failure|Exit)|[\w.]+\.\w+Error): .*", re.MULTILINE)
_ERROR = re.compile(r"^.*(?:\berror\b|\bError\b|Assertion|\bfailed\b|LLVM ERROR).*$", re.MULTILINE)
_VARIABLE = re.compile(
    r"""%[\w.$-]+(?::\d+)?|@[\w.$-]+|\S*/\S*|'[^'\s]*[^'\w.\s][^'\s]*'|<[^>]*>|0x[0-9a-f]+|-?\d[\w.]*(?:[+-]\d+)?"""
)


def error_line(output: str) -> str:
    """The line of an output that names the error: the last Python exception, else the first line about an error."""
    raised = _EXCEPTION.findall(output)
    found = [raised[-1]] if raised else _ERROR.findall(output)[:1] or output.strip().splitlines()[:1]
    return found[0].strip() if found else ""


def pattern_of(line: str) -> str:
    """A regular expression that matches a line with any names, numbers, types and paths."""
    return ".*?".join(map(re.escape, _VARIABLE.split(line)))


_HOLE: Final = "{}"


@dataclass(frozen=True)
class Command:
    """Runs a command on a file with the module. The path replaces ``{}``, or is the last argument.

    An exit status other than 0 is a failure; with ``zero_fails``, 0 is one too.
    """

    command: Sequence[str]
    zero_fails: bool = False
    timeout: float | None = None
    stage: str | None = None  # written in the first line of the file

    def __call__(self, module: ir.Module) -> Failure | None:
        with tempfile.TemporaryDirectory(prefix="symshape-reduce-") as folder:
            file = str(Path(folder) / "input.mlir")
            text = text_of(module) + "\n"
            Path(file).write_text(with_header(self.stage, text) if self.stage else text)
            words = [word.replace(_HOLE, file) for word in self.command]
            words += [] if any(_HOLE in word for word in self.command) else [file]
            try:
                done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=self.timeout)
            except subprocess.TimeoutExpired:
                return Failure("timeout", "")
            except OSError as error:
                hint = "behind -- stands a program and its arguments; {} is the file that is tried"
                raise OptionError(
                    f"the command cannot be run: {error}", where=shlex.join(words), next_step=hint
                ) from None
        if done.returncode == 0 and not self.zero_fails:
            return None
        return Failure(f"exit status {done.returncode}", done.stderr + done.stdout)


@dataclass(frozen=True)
class Raises:
    """Runs passes in this process. It is a failure if a pass raises or leaves invalid IR."""

    steps: Sequence[Step]

    def __call__(self, module: ir.Module) -> Failure | None:
        with tempfile.TemporaryDirectory(prefix="symshape-reduce-") as folder:
            try:
                run_pipeline(module, self.steps, PassContext(), debug_dir=Path(folder))
            except PassFailure as failure:
                reason = str(failure.diagnostics[0].message) if failure.diagnostics else failure.what
                return Failure(f"{failure.step}: {type(failure.__cause__).__name__}", reason)
            except Exception as error:
                return Failure(type(error).__name__, f"{type(error).__name__}: {error}")
        return None
