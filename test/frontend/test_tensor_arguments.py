"""Integers that a program gives as tensors: read where C++ would read them, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape

Tensor = torch.Tensor

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pad": lambda x, t: F.pad(x, (t, t + 1)),
    "pad by name": lambda x, t: F.pad(x, pad=(0, t), mode="constant", value=0.5) * 2,
    "pad reflect": lambda x, t: F.pad(x[None], (t, t), "reflect"),
    "pad computed": lambda x, t: F.pad(x, (0, torch.ceil(t / 2).to(torch.int64))),
    "padding": lambda x, t: F.conv1d(x[None], torch.ones(1, 4, 1), padding=t),
    "sizes": lambda x, t: x.new_zeros((t, 3)) + torch.zeros(t, 3) + torch.full((t,), 1.0)[:, None],
    "steps": lambda x, t: torch.linspace(0, 1, t),
    "repeat": lambda x, t: x.repeat(t, 1) + torch.tile(x, (t, 1)),
    "slices": lambda x, t: (x[:t] * 2, x.narrow(0, 0, t) + 1, x.split((t, 4 - t))[0].sin()),
    "roll": lambda x, t: torch.roll(x, (t,), (0,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(PROGRAMS[name], fullgraph=True)
    for n in (2, 1, 3):
        x, t = torch.randn(4, 4), torch.tensor(n)
        torch.testing.assert_close(compiled(x, t), PROGRAMS[name](x, t))
    assert counters["stats"]["unique_graphs"] == 1


def test_a_dim_that_is_unflattened_breaks_the_graph() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, t: Tensor) -> Tensor:
        return x.flatten().unflatten(0, (t, -1)).sum(0)

    compiled = symshape.compile(program)
    for n in (2, 1, 4):
        x, t = torch.randn(4, 4), torch.tensor(n)
        torch.testing.assert_close(compiled(x, t), program(x, t))


def test_a_list_of_numbers_that_is_read_twice() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, grid: Tensor) -> Tensor:
        total = x.sum()
        for height, width in grid.tolist():
            total = total + torch.ones(height, width).sum()
        for height, width in grid.tolist():
            total = total * height - width
        return total

    compiled = symshape.compile(program)
    for grid in ([[2, 3], [1, 4]], [[5, 1]], [[1, 1], [2, 2]]):
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x, torch.tensor(grid)), program(x, torch.tensor(grid)))
