"""The environment variables of symshape: each is declared here, and read nowhere else (as in Triton's ``knobs``).

A variable is read when it is needed, not when this module is imported, so a process may set one at any time before.
docs/reference/environment.md is generated from this file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One environment variable.

    ``parse`` turns its text into the value; it is not called for a variable that is not set or empty, which is
    ``default``. ``values`` says what can be given, ``description`` in one sentence what it does. ``tests_only``: no
    code of the package reads it.
    """

    name: str
    default: T
    parse: Callable[[str], T]
    values: str
    description: str
    tests_only: bool = False

    def read(self) -> T:
        """The value that the environment gives now."""
        text = os.environ.get(self.name, "")
        return self.parse(text) if text else self.default

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


def _is_on(text: str) -> bool:
    return text.lower() not in ("0", "false", "off", "no")


def _mebibytes(text: str) -> int:
    return int(text) if text.isdigit() else _DEFAULT_CACHE_MIB


_DEFAULT_CACHE_MIB: Final = 1024

CACHE: Final = Variable(
    "SYMSHAPE_CACHE",
    True,
    _is_on,
    "0, false, off or no; anything else is on",
    "Whether compiled graphs and results of autotuning are kept on disk and taken from there.",
)
CACHE_DIR: Final = Variable[str | None](
    "SYMSHAPE_CACHE_DIR",
    None,
    str,
    "a path; by default the folder `symshape` where the platform keeps a user's caches",
    "The directory of the cache.",
)
CACHE_SIZE: Final = Variable(
    "SYMSHAPE_CACHE_SIZE",
    _DEFAULT_CACHE_MIB,
    _mebibytes,
    "a number of MiB",
    "How large the cache may become; the least recently used entries leave.",
)
CPU: Final = Variable(
    "SYMSHAPE_CPU",
    "native",
    str,
    "native, x86-64-v2, x86-64-v3 or x86-64-v4",
    "Which instructions generated CPU code may use; the option `cpu` goes before it.",
)
STRICT: Final = Variable(
    "SYMSHAPE_STRICT",
    False,
    lambda text: text != "0",
    "1 or 0",
    "Whether a failure of a pass or of code generation is an error; the option `strict` goes before it.",
)
VERIFY_EACH: Final = Variable(
    "SYMSHAPE_VERIFY_EACH",
    False,
    lambda text: text != "0",
    "1 or 0",
    "Whether the IR is verified after each pass, and not once after all of them.",
)
RECORD: Final = Variable[str | None](
    "SYMSHAPE_RECORD",
    None,
    str,
    "a path",
    "The folder in which compiled graphs are recorded for `symshape replay`; none is then taken from the cache.",
)
RECORD_DATA: Final = Variable(
    "SYMSHAPE_RECORD_DATA",
    False,
    _is_on,
    "0, false, off or no; anything else is on",
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
    STRICT,
    VERIFY_EACH,
    RECORD,
    RECORD_DATA,
    TEST_BACKEND,
    PROGRAMS,
)
