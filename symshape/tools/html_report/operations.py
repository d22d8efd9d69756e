"""Splits a stage's IR text into operations, with the lines of user code and the graph nodes that they come from.

Works on text because the page shows text. Relies on MLIR's printer, which starts each operation of a function's body on
a line indented by four spaces and indents what is inside of it further.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_STRING = r'"(?:[^"\\]|\\.)*"'
_NESTED = rf'\((?:[^()"]|{_STRING}|\((?:[^()"]|{_STRING})*\))*\)'
_LOCATION = re.compile(rf' loc\((?:[^()"]|{_STRING}|{_NESTED})*\)')
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_NAMED = re.compile(r'"(?P<name>(?:[^"\\]|\\.)*)"(?::(?P<line>\d+):\d+|\()|(?P<alias>#loc\d*)')
_FUNCTION = re.compile(r"^  func\.func (?:private |public )?@([\w.$-]+)")

Line = tuple[str, int]  # file, number


@dataclass(frozen=True)
class Origin:
    """``lines`` of user code; ``nodes`` are names of nodes of the traced graph."""

    lines: tuple[Line, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One operation of a function's body, or the header of a function (``is_head``).

    ``number``    line number of its first line in the stage's text, from 1
    ``function``  name of the enclosing function
    ``text``      text without locations
    """

    number: int
    function: str
    text: str
    origin: Origin
    is_head: bool = False


@dataclass
class _Open:
    number: int
    lines: list[str] = field(default_factory=list)


def read_operations(text: str) -> list[Operation]:
    """All operations of all functions, in order."""
    lines = text.split("\n")
    origins = _Origins(lines)
    return [
        Operation(number, function, _plain(part), origins.of(part), is_head)
        for number, function, part, is_head in _parts(lines)
    ]


def _plain(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in _LOCATION.sub("", text).split("\n"))


def _parts(lines: list[str]) -> Iterator[tuple[int, str, str, bool]]:
    function, current = "", _Open(0)
    for number, line in enumerate(lines, 1):
        if found := _FUNCTION.match(line):
            function = found.group(1)
            yield number, function, line.removeprefix("  "), True
        elif not function:
            continue
        elif line.startswith("    ") and line[4] not in " }^":
            if current.lines:
                yield current.number, function, "\n".join(current.lines), False
            current = _Open(number, [line])
        elif line.startswith("    "):
            current.lines.append(line)
        elif line.startswith("  }"):
            if current.lines:
                yield current.number, function, "\n".join(current.lines), False
            function, current = "", _Open(0)


class _Origins:
    """Resolves MLIR locations to origins; each alias is resolved once."""

    def __init__(self, lines: list[str]) -> None:
        found = (_ALIAS.match(line) for line in lines if line.startswith("#loc"))
        self._texts = {match.group(1): match.group(2) for match in found if match}
        self._known: dict[str, Origin] = {}
        self._seen: dict[str, Origin] = {}  # by text

    def of(self, text: str) -> Origin:
        """The union of all locations in a text, in order."""
        return _joined([self._read(match.group(0)) for match in _LOCATION.finditer(text)])

    def _read(self, text: str) -> Origin:
        if text not in self._seen:
            self._seen[text] = _joined([self._part(found) for found in _NAMED.finditer(text)])
        return self._seen[text]

    def _part(self, found: re.Match[str]) -> Origin:
        if found["alias"]:
            return self._alias(found["alias"])
        if found["line"]:
            return Origin(lines=((found["name"], int(found["line"])),))
        return Origin(nodes=(found["name"],))

    def _alias(self, name: str) -> Origin:
        if name not in self._known:
            self._known[name] = Origin()
            self._known[name] = self._read(self._texts.get(name, ""))
        return self._known[name]


def _joined(parts: list[Origin]) -> Origin:
    if len(parts) == 1:
        return parts[0]
    lines = dict.fromkeys(line for part in parts for line in part.lines)
    nodes = dict.fromkeys(node for part in parts for node in part.nodes)
    return Origin(tuple(lines), tuple(nodes))
