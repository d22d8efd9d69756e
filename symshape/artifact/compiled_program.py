"""The host program of a compiled graph as plain data, and the names of what it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from symshape.artifact.constraint_checks import CheckText


@dataclass
class Program:
    """The ``program`` stage: everything that is needed to run, as text, bytes and names."""

    source: str
    targets: dict[str, str]  # Python name in the source -> library op
    checks: list[CheckText] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    device: str = "cpu"
    pointers: bool = True  # kernels take data pointers (CPU code) instead of tensors
    user_lines: list[tuple[int, str]] = field(default_factory=list)  # from this line of the source on: the user's lines
    launches: int = 0  # how many launches and library calls its text has
    uncaptured: str = ""  # why its launches cannot be a CUDA graph
    segments: list[str] = field(default_factory=list)  # functions of the source that are runs of native work


Function = TypeVar("Function", bound=Callable[..., Any])
_NAMES: dict[Any, str] = {}


def named(name: str) -> Callable[[Function], Function]:
    """Registers a function of the runtime that traced graphs call, by a name that is used in IR too and is no module
    path."""

    def register(function: Function) -> Function:
        _NAMES[function] = name
        return function

    return register


def target_name(target: Any) -> str:
    """The name under which the host program finds a callable again: an op overload, or a function by its module."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.__name__}"
    return _NAMES.get(target) or f"python.{target.__module__}.{target.__qualname__}"
