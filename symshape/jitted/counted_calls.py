"""Rejects functions that change a number in a module's attribute at each call, where they are traced without Dynamo.

The trace runs the function several times, so a counter would count these runs, and the entry would have its last value.
An attribute that has the same value after each run (a cached length) is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from symshape.errors import CompileError

_NUMBERS = (bool, int, float)


class CountedCalls:
    """The runs of one trace."""

    def __init__(self, holder: torch.nn.Module) -> None:
        self._modules = list(holder.modules())
        self._first: dict[tuple[int, str], Any] = {}  # of what a run has changed: its value before

    def run(self, fn: Callable[[], Any]) -> Any:
        """Runs ``fn`` and returns its result. CompileError, with the attributes restored, if it has changed one that an
        earlier run has changed too."""
        before = dict(self._numbers())
        result = fn()
        changed = {at for at, value in self._numbers() if at in before and _differ(value, before[at])}
        again = changed & self._first.keys()
        self._first |= {at: before[at] for at in changed - again}
        if not again:
            return result
        for (i, name), value in self._first.items():
            setattr(self._modules[i], name, value)
        i, name = min(again)
        raise CompileError(
            f"each call changes the attribute {name} of {type(self._modules[i]).__name__}",
            next_step="make it a buffer and change it in place (add_), change it outside, or use symshape.compile",
        )

    def _numbers(self) -> Iterator[tuple[tuple[int, str], Any]]:
        for i, module in enumerate(self._modules):
            for name, value in vars(module).items():
                if type(value) in _NUMBERS:
                    yield (i, name), value


def _differ(value: float, before: float) -> bool:
    return type(value) is not type(before) or (value != before and value == value)
