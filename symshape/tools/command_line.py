"""What the command lines of the tools share: errors in a line; an argument that would silently do nothing is one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from symshape.errors import OptionError, SymshapeError


def exit_status(tool: str, words: Sequence[str], run: Callable[[], int]) -> int:
    """That of ``run``; 1 for an error of ours, and for a file that one of the command line's ``words`` names and that
    cannot be read or written: it is printed. 1 without a word where nobody reads the output any longer."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # tables have lines that ASCII lacks
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # What is left in the buffer would be written once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        cause = getattr(error, "inner_exception", error)  # of what Dynamo says of a backend
        told = isinstance(cause, SymshapeError) or (isinstance(cause, OSError) and _is_named(cause.filename, words))
        if not told:
            raise
        print(f"{tool}: error: {cause}", file=sys.stderr)
        return 1


def _is_named(file: Any, words: Sequence[str]) -> bool:
    """Whether a file is one of these, or a folder on the way to one."""
    if not isinstance(file, (str, os.PathLike)):
        return False
    named = [Path(word).absolute() for word in words]
    return any(Path(file).absolute() in (one, *one.parents) for one in named)


def require_folder_of(file: str | os.PathLike[str] | None) -> None:
    """OptionError where a file cannot be written because there is no folder for it: before anything is computed."""
    if file is not None and not Path(file).absolute().parent.is_dir():
        folder = Path(file).parent
        raise OptionError(f"{file} cannot be written: there is no folder {folder}", next_step=f"mkdir -p {folder}")


def read_input(file: str) -> str:
    """The text of a file; of standard input for "-". OptionError for what is no text."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} is no text: {error}", next_step="give a file with IR") from error


class Once(argparse.Action):
    """Stores a value, as argparse does by default, but a second one is an error instead of taking the first one's
    place."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        seen = namespace.__dict__.setdefault("_seen", set())
        if option is not None and self.dest in seen:
            parser.error(f"argument {option}: given more than once")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


def given(args: argparse.Namespace, parser: argparse.ArgumentParser, names: Sequence[str]) -> list[str]:
    """Which of these options, named as on the command line, have another value than their default."""
    found = {option: action.dest for action in parser._actions for option in (action.option_strings or [action.dest])}
    return [name for name in names if getattr(args, found[name]) != parser.get_default(found[name])]


def forbid(options: Sequence[str], why: str, next_step: str) -> None:
    """OptionError where there is one."""
    if options:
        raise OptionError(
            f"{', '.join(options)} {'does' if len(options) == 1 else 'do'} nothing {why}", next_step=next_step
        )
