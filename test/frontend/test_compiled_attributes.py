"""Attributes of a compiled method that the method itself reads, as trainers of other libraries do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape
from symshape.frontend.patches.registry import CURRENT

COMPILERS: list[Any] = [
    pytest.param(symshape.compile, id="symshape"),
    pytest.param(functools.partial(torch.compile, backend="symshape"), id="torch"),
]
# Dynamo of 2.11 and 2.15 has attributes of the wrapped function, or a guard on them that fails.
as_in_dynamo = pytest.mark.xfail(
    all(patch.name != "attributes of compiled functions" for patch in CURRENT), reason="no row for this PyTorch"
)


class _Trainer:
    def step(self, x: Tensor, scale: float = 2.0) -> Tensor:
        """Multiplies by the number of its parameters."""
        return x * len(inspect.signature(self.step).parameters)

    def wrapped(self, x: Tensor) -> Tensor:
        return x * 2 if hasattr(self.wrapped, "__wrapped__") else x * 3

    def marked(self, x: Tensor) -> Tensor:
        return x * 2 if hasattr(self.marked, "mark") else x * 3


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the attributes of a compiled one."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    call.__wrapped__ = function
    return call


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", [*(pytest.param(n, marks=as_in_dynamo) for n in ("step", "wrapped")), "marked"])
def test_a_compiled_method_reads_its_own_attributes(compiler: Callable[..., Any], name: str) -> None:
    results = []
    for wrapper in (_eager, compiler):
        trainer = _Trainer()
        setattr(trainer, name, wrapper(getattr(trainer, name)))
        results.append(getattr(trainer, name)(torch.ones(3)))
    torch.testing.assert_close(results[1], results[0])
