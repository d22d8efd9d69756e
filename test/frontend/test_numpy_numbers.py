"""Functions of numpy on sizes: one graph for all sizes, with eager mode's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape

Tensor = torch.Tensor
SIZES = (3, 1, 2, 0, 7)


def sizes(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    return (
        F.pad(x, (0, 0, 0, int(np.ceil(n / 4)) * 4 - n)),
        x.new_ones(int(np.floor(n / 2)), np.round(n / 2).astype(int), int(np.trunc(n / 3))),
        x.reshape(np.prod(x.shape)) * 2,
        x.view(-1, np.prod(x.shape[1:]).item()) + 1,
        x[: np.minimum(n, 2)] * np.maximum(n, 2),
        x.new_ones(np.int64(n), int(np.log2(n + 1)), np.remainder(n, 3), np.floor_divide(n, 2)),
    )


def numbers(x: Tensor) -> tuple[Tensor, ...]:
    n, whole = x.shape[0], torch.arange(x.shape[0])
    return (
        x / np.sqrt(x.shape[0] + 1),
        x.half() * np.sqrt(n),
        whole * np.ceil(n / 2),
        whole * np.ceil(n),
        whole.int() * np.prod(x.shape),
        np.log(n + 1) * x + np.sum(x.shape) + np.max([n, 3]),
        x * 2 if isinstance(np.prod(x.shape), int | np.integer) else x,
    )


@pytest.mark.parametrize("function", [sizes, numbers])
def test_one_graph(function: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function, fullgraph=True)
    for n in SIZES:
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), function(x))
    assert counters["stats"]["unique_graphs"] == 1


def test_what_leaves_the_graph_is_a_number_of_numpy() -> None:
    def run(x: Tensor) -> tuple[Any, ...]:
        half = np.ceil(x.shape[0] / 2)
        return x * half, half * 2, np.prod(x.shape), half.round(1), half.clip(1, 3)

    compiled = symshape.compile(run)
    for n in (3, 8):
        x = torch.randn(n, 3)
        found, wanted = compiled(x), run(x)
        torch.testing.assert_close(found[0], wanted[0])
        assert found[1:] == wanted[1:] and [*map(type, found[1:3])] == [np.float64, np.int64]


@pytest.mark.filterwarnings("ignore:.*divi.*:RuntimeWarning")
def test_what_is_divided_by_zero_is_infinite() -> None:
    """A size of 0 has a graph of its own."""

    def run(x: Tensor) -> Tensor:
        return torch.ones(3) * (-1 / np.prod(x.shape)) + (2.0 / np.sqrt(x.shape[0]))

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(run)
    for n in SIZES:
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), run(x), equal_nan=True)
    assert counters["stats"]["unique_graphs"] == 2
