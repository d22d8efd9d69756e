"""The environment variables of symshape, declared and read here only (as in Triton's ``knobs``).

A variable is read when it is needed, not when this module is imported, so a process may set one at any time before.
docs/reference/environment.md is generated from this file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from symshape.errors import OptionError

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One environment variable.

    ``parse`` turns its text into the value, or raises ValueError; it is not called for a variable that is not set or
    empty, whose value is ``default``. ``values`` describes the valid texts, ``description`` the effect in one sentence.
    ``tests_only``: no code of the package reads it.
    """

    name: str
    default: T
    parse: Callable[[str], T]
    values: str
    description: str
    tests_only: bool = False

    def read(self) -> T:
        """The present value. OptionError for an invalid text."""
        text = os.environ.get(self.name, "")
        try:
            return self.parse(text) if text else self.default
        except ValueError as error:
            raise OptionError(f"{self.name} cannot be {text!r}", next_step=f"it is {self.values}") from error

    @contextlib.contextmanager
    def set_to(self, text: str) -> Iterator[None]:
        """While entered, the variable has this text."""
        before = os.environ.get(self.name)
        os.environ[self.name] = text
        try:
            yield
        finally:
            del os.environ[self.name]
            if before is not None:
                os.environ[self.name] = before


def _switch(text: str) -> bool:
    if text.lower() not in (*_ON, *_OFF):
        raise ValueError(text)
    return text.lower() in _ON


def _mebibytes(text: str) -> int:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]i?b)?", text.lower())
    if parts is None:
        raise ValueError(text)
    unit = parts[2] or "mib"
    power = "kmgt".index(unit[0]) + 1
    return int(float(parts[1]) * (1024 if "i" in unit else 1000) ** power) >> 20


def _path(text: str) -> str:
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:  # there is no such user, or this one has no home directory
        raise ValueError(text) from error


_ON: Final = ("1", "true", "on", "yes")
_OFF: Final = ("0", "false", "off", "no")
_SWITCH_VALUES: Final = f"{', '.join(_ON[:-1])} or {_ON[-1]}; {', '.join(_OFF[:-1])} or {_OFF[-1]}"
_PATH_VALUES: Final = "a path; ~ is the home directory"
_DEFAULT_CACHE_MIB: Final = 1024
_DEFAULT_KEPT_MIB: Final = 512

CACHE: Final = Variable(
    "SYMSHAPE_CACHE",
    True,
    _switch,
    _SWITCH_VALUES,
    "Whether compiled graphs and results of autotuning are kept on disk and taken from there.",
)
CACHE_DIR: Final = Variable[str | None](
    "SYMSHAPE_CACHE_DIR",
    None,
    _path,
    f"{_PATH_VALUES}; by default the folder `symshape` where the platform keeps a user's caches",
    "The directory of the cache.",
)
CACHE_SIZE: Final = Variable(
    "SYMSHAPE_CACHE_SIZE",
    _DEFAULT_CACHE_MIB,
    _mebibytes,
    "a number of MiB, or of another unit that follows it: kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    "How large the cache may become; the least recently used entries leave.",
)
CPU: Final = Variable(
    "SYMSHAPE_CPU",
    "native",
    str,
    "native, x86-64-v2, x86-64-v3 or x86-64-v4",
    "Which instructions generated CPU code may use; the option `cpu` goes before it.",
)
KEPT_MEMORY: Final = Variable(
    "SYMSHAPE_KEPT_MEMORY",
    _DEFAULT_KEPT_MIB,
    _mebibytes,
    "a number of MiB, or of another unit that follows it; 0 keeps none",
    "How much memory of large CPU tensors a process keeps for the next call; the least recently used blocks leave.",
)
STRICT: Final = Variable(
    "SYMSHAPE_STRICT",
    False,
    _switch,
    _SWITCH_VALUES,
    "Whether a failure of a pass or of code generation is an error; the option `strict` goes before it.",
)
VERIFY_EACH: Final = Variable(
    "SYMSHAPE_VERIFY_EACH",
    False,
    _switch,
    _SWITCH_VALUES,
    "Whether the IR is verified after each pass, and not once after all of them.",
)
RECORD: Final = Variable[str | None](
    "SYMSHAPE_RECORD",
    None,
    _path,
    _PATH_VALUES,
    "The folder in which compiled graphs are recorded for `symshape replay`; none is then taken from the cache.",
)
RECORD_DATA: Final = Variable(
    "SYMSHAPE_RECORD_DATA",
    False,
    _switch,
    _SWITCH_VALUES,
    "Whether a recording has the values of tensors that are constants of the graph, and not their layouts alone.",
)
TEST_BACKEND: Final = Variable(
    "SYMSHAPE_TEST_BACKEND",
    "symshape",
    str,
    "the name of a backend of torch.compile",
    "The backend that the tests of models compile with.",
    tests_only=True,
)
PROGRAMS: Final = Variable(
    "SYMSHAPE_PROGRAMS",
    8,
    int,
    "a number",
    "How many of the programs of test/programs are compiled together in one function.",
    tests_only=True,
)

VARIABLES: Final[tuple[Variable[Any], ...]] = (
    CACHE,
    CACHE_DIR,
    CACHE_SIZE,
    CPU,
    KEPT_MEMORY,
    STRICT,
    VERIFY_EACH,
    RECORD,
    RECORD_DATA,
    TEST_BACKEND,
    PROGRAMS,
)


def check_environment() -> None:
    """OptionError for a variable with an invalid text: raised where a compile starts, not where the variable is
    read."""
    for variable in VARIABLES:
        if not variable.tests_only:
            variable.read()
