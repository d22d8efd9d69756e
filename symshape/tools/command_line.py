"""Helpers of all command-line tools: printing errors in one line, and rejecting arguments that would have no effect."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from symshape.errors import OptionError, SymshapeError
from symshape.version import VERSION


def new_parser(tool: str, doc: str | None, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser with ``--version``, described by a module's docstring. No option may be shortened: a flag of
    ``symshape-opt`` that is none of its own is a pass."""
    parser = argparse.ArgumentParser(tool, description=(doc or "").replace("``", ""), epilog=epilog, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{tool} {VERSION}", help="print it and stop")
    return parser


def exit_status(tool: str, words: Sequence[str], run: Callable[[], int]) -> int:
    """Calls ``run`` and returns its exit status, or 1 after an error that is printed in one line: a SymshapeError, or
    an OSError about a file named in ``words`` (the command line). Other exceptions propagate. A closed output pipe
    gives 1 without a message."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # tables use box-drawing characters, which ASCII lacks
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Otherwise the interpreter flushes the buffer at exit and fails once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        cause = getattr(error, "inner_exception", error)  # Dynamo wraps exceptions of a backend
        told = isinstance(cause, SymshapeError) or (isinstance(cause, OSError) and _is_named(cause.filename, words))
        if not told:
            raise
        print(f"{tool}: error: {cause}", file=sys.stderr)
        return 1


def _is_named(file: Any, words: Sequence[str]) -> bool:
    """Whether ``file`` is one of the paths in ``words``, or a parent folder of one."""
    if not isinstance(file, (str, os.PathLike)):
        return False
    named = [Path(word).absolute() for word in words]
    return any(Path(file).absolute() in (one, *one.parents) for one in named)


def require_folder_of(file: str | os.PathLike[str] | None) -> None:
    """OptionError if the parent folder of ``file`` does not exist. Called before a long computation, so that writing
    its result cannot fail for this reason."""
    if file is not None and not Path(file).absolute().parent.is_dir():
        folder = Path(file).parent
        raise OptionError(f"{file} cannot be written: there is no folder {folder}", next_step=f"mkdir -p {folder}")


def read_input(file: str) -> str:
    """The text of a file, or of standard input for "-". OptionError if it cannot be decoded."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} is no text: {error}", next_step="give a file with IR") from error


class Once(argparse.Action):
    """An argparse action that stores a value and rejects an option given twice; argparse's default silently keeps the
    last value."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        seen = namespace.__dict__.setdefault("_seen", set())
        if option is not None and self.dest in seen:
            parser.error(f"argument {option}: given more than once")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


def given(args: argparse.Namespace, parser: argparse.ArgumentParser, names: Sequence[str]) -> list[str]:
    """Those of the options ``names``, spelled as on the command line, whose value differs from the default."""
    found = {option: action.dest for action in parser._actions for option in (action.option_strings or [action.dest])}
    return [name for name in names if getattr(args, found[name]) != parser.get_default(found[name])]


def forbid(options: Sequence[str], why: str, next_step: str) -> None:
    """OptionError if ``options`` is not empty; ``why`` completes the sentence "... do nothing"."""
    if options:
        raise OptionError(
            f"{', '.join(options)} {'does' if len(options) == 1 else 'do'} nothing {why}", next_step=next_step
        )
