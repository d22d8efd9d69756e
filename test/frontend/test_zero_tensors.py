"""Forward differentiation where a tangent is zero: one graph for every size, and eager mode's results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.utils import counters
from torch.func import jvp

import symshape
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force

aten: Any = torch.ops.aten

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


def sums(x: Tensor) -> Any:
    """Of types and ranks that differ, too."""
    return (
        x - 1,
        2 - x,
        1 + x,
        x + torch.ones(1, 1, 1, dtype=torch.float64),
        (torch.ones(4) - 2 * torch.sub(1, x, alpha=3)),
    )


def products(x: Tensor) -> Any:
    """Zero times infinity is zero: the tangent of what is infinite is that of ``x`` times the constant."""
    above = x.masked_fill(x > 0, math.inf)
    return above * 2.0, x * torch.ones(3, 1, 1), 1 / (x * x + 1), x / x.new_full((), 0.0), torch.ones(4) / x


def others(x: Tensor) -> Any:
    """Operators for which zeros are made."""
    ones = torch.ones_like(x)
    return torch.atan2(ones, x), torch.maximum(x, ones), torch.lerp(x, ones, 0.25), F.linear(x, WEIGHT, WEIGHT[0])


def twice(x: Tensor) -> Any:
    return jvp(lambda y: ((y * 2 - 1) / (1 + y * y)) ** 2, (x,), (torch.ones_like(x),))


def written(x: Tensor) -> Any:
    found = torch.zeros(x.shape)
    found[:, :2] = x[:, :2]
    return found.mul_(3)


@pytest.mark.parametrize("program", [sums, products, others, twice, written])
def test_one_graph_serves_every_size(program: Callable[[Tensor], Any]) -> None:
    transform = lambda x: jvp(program, (x,), (x.cos(),))  # noqa: E731
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(transform, options={"strict": True})
    for rows in (3, 5, 1):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), transform(x), equal_nan=True)
    assert counters["stats"]["unique_graphs"] == 1


def test_nothing_writes_to_a_zero() -> None:
    with in_force(Scope("frame")), enable_python_dispatcher(), pytest.raises(RuntimeError, match="no memory"):
        aten.add_.Tensor(aten._efficientzerotensor([3]), torch.ones(3))
