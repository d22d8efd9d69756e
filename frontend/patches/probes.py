"""Probes: check that PyTorch still has what a patch relies on, such as names, signatures, local variables, messages.

A probe inspects code objects, and runs nothing of PyTorch unless it is ``slow``. Slow probes run only in tests and by
``symshape patches --probe``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch


class Probe(Protocol):
    """A check of PyTorch. ``wrong()`` describes what has changed; "" if nothing has."""

    @property
    def slow(self) -> bool: ...

    def wrong(self) -> str: ...


@dataclass(frozen=True)
class Named:
    """A target without a dotted name. ``read()`` returns its current value."""

    name: str
    read: Callable[[], Any]

    def __str__(self) -> str:
        return self.name


def added(name: str) -> Named:
    """A target that PyTorch does not define itself: an attribute by its dotted name, or an entry of a table."""

    def read() -> Any:
        if name.endswith("]"):
            table, key = entry_of(name)
            return table.get(key, MISSING)
        owner, last = owner_of(name)
        return vars(owner).get(last, MISSING)

    return Named(name, read)


# A dotted name, with "()" for a call, or "table[key]" for an entry of a table; operators are keys: aten.mm.default.
Target = str | Named
MISSING: Any = object()


def owner_of(name: str) -> tuple[Any, str]:
    """The owner of the attribute with a dotted name, and the attribute's name. Raises like `resolved`."""
    path, _, last = name.rpartition(".")
    return resolved(path), last


def resolved(name: str) -> Any:
    """The object with a dotted name; a module takes precedence over a function of the same name. Raises AttributeError,
    KeyError or ModuleNotFoundError if there is none."""
    if name.endswith("]"):
        table, key = entry_of(name)
        return table[key]
    found: Any
    found, path = (torch.ops, "torch.ops") if name.startswith("torch.ops.") else (None, "")
    for part in name[len(path) :].lstrip(".").split("."):
        path = f"{path}.{part}" if path else part
        if path in sys.modules:
            found = sys.modules[path]
        elif isinstance(found, types.ModuleType) and not hasattr(found, part) or found is None:
            found = importlib.import_module(path)
        elif part.endswith("()"):
            found = getattr(found, part[:-2])()
        else:
            try:
                found = getattr(found, part)
            except AttributeError:  # also raised by descriptors that are read on the class
                found = inspect.getattr_static(found, part)
    return found


def entry_of(name: str) -> tuple[Any, Any]:
    """The table and key that ``table[key]`` names; operators are written ``aten.expand.default``."""
    table, _, key = name[:-1].partition("[")
    return resolved(table), resolved(f"torch.ops.{key}" if key.startswith("aten.") else key)


def _missing(name: str) -> str:
    try:
        resolved(name)
    except Exception as error:  # noqa: BLE001 - anything that reading an attribute of PyTorch may raise
        return f"{name} is missing ({type(error).__name__}: {error})"
    return ""


@dataclass(frozen=True)
class Exists:
    """An object with this name exists. ``kind``: required name of its type; ``own``: a class must define it itself
    rather than inherit it."""

    name: str
    kind: str = ""
    own: bool = False
    slow: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"`{self.name}`" + (f", a {self.kind}" if self.kind else "")

    def wrong(self) -> str:
        missing = _missing(self.name)
        if self.own and not missing and _is_inherited(self.name):
            return f"{self.name} is missing: it is a base's"
        if missing or not self.kind:
            return missing
        kind = type(resolved(self.name)).__name__
        return "" if kind == self.kind else f"{self.name} is a {kind}, and was a {self.kind}"


def _is_inherited(name: str) -> bool:
    if name.endswith("]") or name.startswith("torch.ops."):
        return False
    owner, last = owner_of(name)
    return isinstance(owner, type) and last not in vars(owner)


@dataclass(frozen=True)
class Takes:
    """A function has these parameters in this order, written as in ``def``: ``"x, *args, dim, **options"``. If versions
    of PyTorch differ and the change serves all of them, alternatives are separated by `` | ``."""

    name: str
    parameters: str
    slow: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"`{self.name}({self.parameters})`"

    def wrong(self) -> str:
        missing = _missing(self.name)
        if missing:
            return missing
        found = parameters_of(resolved(self.name))
        return (
            ""
            if found in self.parameters.split(" | ")
            else f"{self.name} takes ({found}), and took ({self.parameters})"
        )


def parameters_of(function: Any) -> str:
    """The names of a function's parameters, written as in ``def``."""
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "?"
    return ", ".join(stars.get(one.kind, "") + one.name for one in found)


@dataclass(frozen=True)
class HasLocal:
    """A function has a local variable of this name, which is read from its frame."""

    name: str
    local: str
    slow: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"the local variable `{self.local}` of `{self.name}`"

    def wrong(self) -> str:
        missing = _missing(self.name)
        if missing:
            return missing
        code = _code_of(resolved(self.name))
        there = code is not None and self.local in (*code.co_varnames, *code.co_cellvars)
        return "" if there else f"{self.name} has no local variable {self.local!r}"


@dataclass(frozen=True)
class Says:
    """A function has this text in one of its constants (a message), or uses exactly this name (a variable)."""

    name: str
    text: str
    slow: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"`{self.text}` in the code of `{self.name}`"

    def wrong(self) -> str:
        missing = _missing(self.name)
        if missing:
            return missing
        code = _code_of(resolved(self.name))
        names, constants = _texts(code) if code is not None else (frozenset(), ())
        there = self.text in names or any(self.text in one for one in constants)
        return "" if there else f"{self.text!r} is not in the code of {self.name}"


@dataclass(frozen=True)
class Documents:
    """The documentation of a C++ function, which shows its parameters, contains this text."""

    name: str
    text: str
    slow: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"`{self.name}({self.text}, ...)`"

    def wrong(self) -> str:
        missing = _missing(self.name)
        if missing or self.text in (resolved(self.name).__doc__ or ""):
            return missing
        return f"{self.name} does not take ({self.text}, ...)"


@dataclass(frozen=True)
class Behaves:
    """Calling PyTorch behaves as expected: ``run()`` returns what is wrong, or "". ``name``: what is called."""

    name: str
    run: Callable[[], str]
    slow: bool = True

    def __str__(self) -> str:
        return f"what `{self.name}` does (`{self.run.__name__}`)"

    def wrong(self) -> str:
        return _missing(self.name) or self.run()


def _code_of(function: Any) -> types.CodeType | None:
    function = inspect.unwrap(getattr(function, "__func__", function))
    found = getattr(function, "__code__", None)
    return found if isinstance(found, types.CodeType) else None


@functools.lru_cache(maxsize=256)
def _texts(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names and the string constants in a code object and the functions nested in it."""
    codes = tuple(_walk(code))
    names = frozenset(name for one in codes for name in one.co_names)
    return names, tuple(text for one in codes for text in one.co_consts if isinstance(text, str))


def _walk(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _walk(constant)
