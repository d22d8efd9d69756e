"""Constraints that compiled code checks, as plain data: their text, where they come from, and the error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from symshape.errors import ShapeConstraintError, with_text

# The framework's names for sources, and what a user writes for them.
_SPELLINGS = (
    (re.compile(r"\bL\['(\w+)'\]"), r"\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.(size|stride)\(\)\[(\d+)\]"), r".\1(\2)"),
)


_SOURCE = re.compile(r"(?P<base>.+)\.(?P<kind>size|stride|storage_offset)\((?P<dim>\d*)\)$")


_NAMED = re.compile(r"(\w+): (.+)$")


_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True)
class CheckText:
    """A constraint that generated code checks: the condition as Python text over symbols, its message, the user's lines
    (``file:line``, one per line: it may replace several constraints), and where each symbol comes from (see
    ``Origin.parse``)."""

    condition: str
    message: str
    location: str
    sources: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Origin:
    """The user's name of a symbol (``name``), and where it is read (``where``, in words)."""

    name: str
    where: str

    @classmethod
    def parse(cls, symbol: str, source: str) -> Origin:
        """Parses a symbol's source: the framework's name for it, such as ``L['x'].size()[0]``, or with the name of a
        dim before it, ``batch: x.size()[0]``; for an unbacked symbol words, without a name."""
        named = _NAMED.match(source)
        text = named[2] if named else source
        for pattern, spelling in _SPELLINGS:
            text = pattern.sub(spelling, text)
        found = _SOURCE.match(text)
        if found is None:
            plain = text.isidentifier()
            words = f"argument {text}" if plain else text
            return cls(named[1] if named else text if plain else symbol, words)
        base, kind, dim = found["base"], found["kind"], found["dim"]
        words = {"size": f"dim {dim}", "stride": f"stride {dim}", "storage_offset": "storage offset"}[kind]
        words += f" of argument {base}"
        return cls(named[1], f"{text}, {words}") if named else cls(text, words)


def user_text(condition: str, origins: Mapping[str, Origin]) -> str:
    """The condition with every symbol called as the user calls it."""
    return _WORD.sub(lambda word: origins[word[0]].name if word[0] in origins else word[0], condition)


def error_of(check: CheckText, values: Mapping[str, int]) -> ShapeConstraintError:
    """The error of a check that does not hold for these values of its symbols."""
    origins = {symbol: Origin.parse(symbol, source) for symbol, source in check.sources}
    used = {symbol: origin for symbol, origin in origins.items() if symbol in values}
    constraint = user_text(check.condition, origins)
    shown = [
        f"{origin.name} = {values[symbol]}" + (f" ({origin.where})" if origin.where else "")
        for symbol, origin in used.items()
    ]
    inputs = list(dict.fromkeys(origin.name for origin in used.values() if "argument " in origin.where))
    change = f"pass inputs with another {' or '.join(inputs)}" if inputs else "pass inputs for which it holds"
    message = f"{check.message}: " if check.message else ""
    return ShapeConstraintError(
        f"{message}{constraint} does not hold" + (f" for {', '.join(shown)}" if shown else ""),
        where="\n      ".join(map(with_text, check.location.split("\n"))),
        next_step=f"{change}, or relax the constraint where it is made",
        constraint=constraint,
        values={origin.name: values[symbol] for symbol, origin in used.items()},
    )
