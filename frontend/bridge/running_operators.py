"""Runs operators on real tensors during a trace, and observes what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """While entered, operators run on real tensors: no tracing, no fake tensors, no Python dispatch."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        yield


class _Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    random = False
    sizes_of_values = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        self.sizes_of_values = self.sizes_of_values or torch.Tag.dynamic_output_shape in func.tags
        self.written += _written(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The operands that an operator writes to. Schemas of batch normalisation do not declare the running statistics."""
    given = {one.name: value for one, value in zip(func._schema.arguments, args)} | kwargs
    if given.get("training") and not func._schema.is_mutable:
        yield from (x for name in _STATISTICS if isinstance(x := given.get(name), torch.Tensor))
    for one in func._schema.arguments if func._schema.is_mutable else ():
        if one.alias_info is not None and one.alias_info.is_write:
            value = given.get(one.name)
            yield from (x for x in (value if isinstance(value, list | tuple) else (value,)) if x is not None)


_STATISTICS = ("running_mean", "running_var")


def observed_operators() -> Any:
    """A context that records what operators do: ``random``, whether random numbers are drawn; ``sizes_of_values``,
    whether sizes of results are data-dependent; ``written``, the tensors that are written to."""
    made: Any = _Observer
    return made()
