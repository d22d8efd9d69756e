"""Constraints that are checked at run time, as plain data: their text, where they come from, and the error."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from symshape.errors import ShapeConstraintError

# The framework's names for places, and what a user writes for them.
_SPELLINGS = (
    (re.compile(r"\bL\['(\w+)'\]"), r"\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.(size|stride)\(\)\[(\d+)\]"), r".\1(\2)"),
)
_PLACE = re.compile(r"(?P<base>.+)\.(?P<kind>size|stride|storage_offset)\((?P<dim>\d*)\)$")
_NAMED = re.compile(r"(\w+): (.+)$")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
# What a condition's text may call (``Condition.python``).
_FUNCTIONS: dict[str, Any] = {"__builtins__": {}, "max": max, "min": min}


@dataclass(frozen=True)
class CheckText:
    """A constraint that generated code checks: the condition as Python text over symbols, its message, the user's
    lines (``file:line``, one below the other: it may stand for several), and where each symbol comes from (see
    ``Origin.parse``)."""

    condition: str
    message: str
    location: str
    sources: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Origin:
    """How a user calls the value of a symbol (``name``), and where it is read (``place``, in words)."""

    name: str
    place: str

    @classmethod
    def parse(cls, symbol: str, source: str) -> Origin:
        """Of a symbol's source: the framework's name for it, such as ``L['x'].size()[0]``, or with the name of a dim
        before it, ``batch: x.size()[0]``; of a data-dependent size words, which do not name it."""
        named = _NAMED.match(source)
        text = named[2] if named else source
        for pattern, spelling in _SPELLINGS:
            text = pattern.sub(spelling, text)
        place = _PLACE.match(text)
        if place is None:
            plain = text.isidentifier()
            words = f"argument {text}" if plain else text
            return cls(named[1] if named else text if plain else symbol, words)
        base, kind, dim = place["base"], place["kind"], place["dim"]
        words = {"size": f"dim {dim}", "stride": f"stride {dim}", "storage_offset": "storage offset"}[kind]
        words += f" of argument {base}"
        return cls(named[1], f"{text}, {words}") if named else cls(text, words)


def user_text(condition: str, origins: Mapping[str, Origin]) -> str:
    """The condition with every symbol called as the user calls it."""
    return _WORD.sub(lambda word: origins[word[0]].name if word[0] in origins else word[0], condition)


def holds(check: CheckText, values: Mapping[str, int]) -> bool:
    """Whether a condition holds for these values; one that divides by zero does not."""
    try:
        return bool(eval(check.condition, _FUNCTIONS, dict(values)))
    except ZeroDivisionError:
        return False


def fail(checks: Sequence[CheckText], values: Mapping[str, int]) -> NoReturn:
    """Raises the ShapeConstraintError of the first check that does not hold.

    Generated code only finds out that one of them fails; which one is found here, by evaluating each by itself.
    """
    raise error_of(next(check for check in checks if not holds(check, values)), values)


def error_of(check: CheckText, values: Mapping[str, int]) -> ShapeConstraintError:
    """The error of a check that does not hold for these values of its symbols."""
    origins = {symbol: Origin.parse(symbol, source) for symbol, source in check.sources}
    used = {symbol: origin for symbol, origin in origins.items() if symbol in values}
    constraint = user_text(check.condition, origins)
    shown = [
        f"{origin.name} = {values[symbol]}" + (f" ({origin.place})" if origin.place else "")
        for symbol, origin in used.items()
    ]
    inputs = list(dict.fromkeys(origin.name for origin in used.values() if "argument " in origin.place))
    change = f"pass inputs with another {' or '.join(inputs)}" if inputs else "pass inputs for which it holds"
    message = f"{check.message}: " if check.message else ""
    return ShapeConstraintError(
        f"{message}{constraint} does not hold" + (f" for {', '.join(shown)}" if shown else ""),
        where="\n      ".join(map(with_text, check.location.split("\n"))),
        next_step=f"{change}, or relax the constraint where it is made",
        constraint=constraint,
        values={origin.name: values[symbol] for symbol, origin in used.items()},
    )


def with_text(location: str) -> str:
    """``file:line`` with what stands there, if the file can be read."""
    file, _, line = location.rpartition(":")
    text = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"{location}: {text}" if text else location


def load_function(source: str, name: str, namespace: Mapping[str, Any], file: str) -> Callable[..., Any]:
    """The function ``name`` that a generated source defines; tracebacks call the source ``file``."""
    scope = dict(namespace)
    exec(compile(source, file, "exec"), scope)
    loaded: Callable[..., Any] = scope[name]
    return loaded
