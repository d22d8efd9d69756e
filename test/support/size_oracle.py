"""How many graphs a function needs over some inputs, found without tracing.

The function runs in eager mode, and the sizes that it sees are integers which write down what Python code outside of
PyTorch asks of them: comparisons, truth, and use as a number. Inputs for which the same was asked in the same order
with the same answers take the same path.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Path = tuple[tuple[str, int, str, Any], ...]
_NOT_THE_USERS = ("torch.", "torch", __name__, "functools", "contextlib", "collections", "enum", "typing")


def graphs_needed(function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> int:
    """The number of paths of ``function`` over these calls' arguments."""
    return len({path_of(function, arguments) for arguments in calls})


def path_of(function: Callable[..., Any], arguments: Sequence[Any]) -> Path:
    asked: list[tuple[str, int, str, Any]] = []

    class Size(int):
        """A size; arithmetic gives sizes."""

        __hash__ = int.__hash__

    def write_down(what: str, answer: Any) -> Any:
        frame: Any = sys._getframe(2)
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(_NOT_THE_USERS):
            asked.append((frame.f_code.co_filename, frame.f_lineno, what, answer))
        return answer

    def comparison(name: str) -> Callable[..., Any]:
        def compare(self: Any, other: Any) -> Any:
            found = getattr(int, name)(self, other)
            return found if found is NotImplemented else write_down(name, found)

        return compare

    def arithmetic(name: str) -> Callable[..., Any]:
        def compute(self: Any, *others: Any) -> Any:
            found = getattr(int, name)(self, *others)
            return Size(found) if type(found) is int else found

        return compute

    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__int__"):
        made = comparison(name) if name not in ("__bool__", "__int__") else _read(name, write_down)
        setattr(Size, name, made)
    for name in ("add", "sub", "mul", "floordiv", "mod", "radd", "rsub", "rmul", "rfloordiv", "rmod", "neg", "pos"):
        setattr(Size, f"__{name}__", arithmetic(f"__{name}__"))

    class Sizes(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if func in _READERS:
                return tuple(map(Size, found)) if isinstance(found, tuple) else Size(found)
            return found

    with Sizes():
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - what eager mode raises is part of the path
            asked.append((type(error).__name__, 0, "raises", None))
    return tuple(asked)


def _read(name: str, write_down: Callable[[str, Any], Any]) -> Callable[..., Any]:
    def read(self: Any) -> Any:
        return write_down(name, getattr(int, name)(operator.index(self)))

    return read


_READERS = frozenset({torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.__len__})  # type: ignore[attr-defined]
