"""Runs operators beside a trace, as eager mode would, and sees what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """While entered, operators run as they are: nothing is traced, nothing is fake, no rule in Python is asked."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        yield


class _Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    random = False
    sizes_of_values = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        self.sizes_of_values = self.sizes_of_values or torch.Tag.dynamic_output_shape in func.tags
        return func(*args, **(kwargs or {}))


def observed_operators() -> Any:
    """A context that sees what operators do: whether random numbers are drawn (``random``), and whether sizes of
    results are in the data (``sizes_of_values``)."""
    made: Any = _Observer
    return made()
