"""Parses and prints one-line operations in MLIR's generic form: ``%r = "x.y"(%a) {k = v} : (t) -> u``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
STRING = r'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(r'(\s*(?:%[\w$.:, %-]+ = )?)"([\w.]+)"\(([^()]*)\)')
_KEY = re.compile(rf"([\w$.]+|{STRING})\s*(=?)\s*")
# Brackets count, except in arrows, comparisons and strings.
_MARK = re.compile(rf"{STRING}|->|>=|<=|[()\[\]{{}}<>,\s]")


@dataclass(frozen=True)
class GenericOp:
    """``head``: the text before the name (indentation, results); ``tail``: the text after the types (a location).
    Attributes are text, "" for a unit attribute."""

    head: str
    name: str
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    operand_types: tuple[str, ...]
    result_types: tuple[str, ...]
    tail: str = ""

    def __str__(self) -> str:
        attributes = f" {{{attributes_text(self.attributes)}}}" if self.attributes else ""
        types = f"({', '.join(self.operand_types)}) -> {types_text(self.result_types)}"
        return f'{self.head}"{self.name}"({", ".join(self.operands)}){attributes} : {types}{self.tail}'


def read_generic(line: str) -> GenericOp | None:
    """The operation of a line; None if the line has none in generic form, or it continues on the next line."""
    match = _HEAD.match(line)
    if match is None:
        return None
    head, name, operands = match.groups()
    end, attributes = match.end(), {}
    if line.startswith(" {", end):
        close = end_of(line, end + 2, "")
        attributes, end = read_attributes(line[end + 2 : close]), close + 1
    if not line.startswith(" : (", end):
        return None
    close = end_of(line, end + 4, "")
    given = split(line[end + 4 : close])
    if not line.startswith(" -> ", close + 1):
        return None
    start = close + 5
    if line.startswith("(", start):
        end = end_of(line, start + 1, "")
        results, end = split(line[start + 1 : end]), end + 1
    else:
        end = end_of(line, start, " ")
        results = [line[start:end]]
    return GenericOp(head, name, tuple(split(operands)), attributes, tuple(given), tuple(results), line[end:])


def end_of(text: str, start: int, stops: str) -> int:
    """The end of a part of a text: before one of ``stops``, or before an unmatched closing bracket."""
    depth = 0
    for mark in _MARK.finditer(text, start):
        token = mark[0]
        if depth == 0 and token[0] in stops:
            return mark.start()
        if token in "([{<":
            depth += 1
        elif token in ")]}>":
            depth -= 1
            if depth < 0:
                return mark.start()
    return len(text)


def split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, start = [], 0
    while start < len(text):
        end = end_of(text, start, ",")
        parts.append(text[start:end].strip())
        start = end + 1
    return parts


def read_attributes(text: str) -> dict[str, str]:
    """The attributes in braces, as texts by name."""
    attributes = {}
    for part in split(text):
        match = _KEY.match(part)
        if match is None:
            raise ValueError(f"no attribute: {part}")
        attributes[match[1]] = part[match.end() :] if match[2] else ""
    return attributes


def attributes_text(attributes: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" if value else key for key, value in attributes.items())


def types_text(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else f"({', '.join(types)})"
