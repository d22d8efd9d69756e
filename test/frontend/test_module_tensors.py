"""Parameters and buffers whose sizes change between calls: constants at first, then one graph for all sizes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.tools.measure import Graphs

Change = Callable[[Any, int], None]
plain = functools.partial(torch.compile, backend="symshape", dynamic=True)
WRAPS = pytest.mark.parametrize("wrap", [symshape.compile, plain], ids=["compile", "plain"])


def graphs_of(
    wrap: Callable[..., Any],
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    change: Change = lambda module, call: None,
    *,
    train: bool = False,
) -> int:
    """The number of graphs; each call is compared with eager mode, with gradients and buffers."""
    torch._dynamo.reset()
    eager = copy.deepcopy(module)
    compiled = wrap(module)
    with Graphs() as graphs, torch.set_grad_enabled(train):
        for call, x in enumerate(inputs):
            for one in (eager, module):
                torch.manual_seed(call)
                change(one, call)
                one.zero_grad()
            want, got = eager(x), compiled(x)
            torch.testing.assert_close(got, want)
            if train:
                (want.square().sum() + got.square().sum()).backward()
            for p, q in zip(module.parameters(), eager.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad)
            for p, q in zip(module.buffers(), eager.buffers(), strict=True):
                torch.testing.assert_close(p, q)
    return graphs.read().graphs


class Cache(nn.Module):
    """Keys that are appended at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 0, 4))
        self.project = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys: torch.Tensor = torch.cat([self.keys, self.project(x)], 1)
        return torch.softmax(x @ self.keys.transpose(1, 2), -1) @ self.keys


class Window(nn.Module):
    """A buffer that is a view of a larger one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.last, x], 1)
        self.last: torch.Tensor = both[:, 1:]
        return both.cumsum(1)


class Positions(nn.Module):
    """A table for the longest length so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        if self.table is None or self.table.shape[0] < n:
            positions = torch.arange(n)
            self.table: torch.Tensor | None = -(positions[:, None] - positions[None, :]).abs() * 0.5
        return torch.softmax(x + self.table[-n:, -n:], -1)


class Points(nn.Module):
    """Parameters for a number of points that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.randn(5, 3))
        self.weight = nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        distances = (x[:, None] - self.at[None]).square().sum(-1)
        return (torch.exp(-distances) * self.weight.sigmoid()).sum(1)


class Channels(nn.Module):
    """Layers whose number of channels changes."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.b, self.l = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(self.b(self.c(x)).relu().mean((2, 3)))  # type: ignore[no-any-return]


def other_points(module: Points, call: int) -> None:
    n = [5, 9, 3, 1, 20, 0][call]
    module.at, module.weight = nn.Parameter(torch.randn(n, 3)), nn.Parameter(torch.randn(n))


def other_channels(module: Channels, call: int) -> None:
    n = [8, 7, 5, 2, 9][call]  # a convolution asks whether it has one channel
    module.c.weight, module.c.bias = nn.Parameter(torch.randn(n, 3, 3, 3)), nn.Parameter(torch.randn(n))
    module.b.weight, module.b.bias = nn.Parameter(torch.randn(n)), nn.Parameter(torch.randn(n))
    module.b.running_mean, module.b.running_var = torch.randn(n), torch.rand(n) + 0.5
    module.l.weight = nn.Parameter(torch.randn(4, n))


@WRAPS
def test_a_cache_that_grows(wrap: Callable[..., Any]) -> None:
    assert graphs_of(wrap, Cache(), [torch.rand(2, n, 4) for n in (3, 1, 1, 2, 7, 1)]) == 2


@WRAPS
def test_a_view_of_a_larger_buffer(wrap: Callable[..., Any]) -> None:
    inputs = [torch.rand(2, n) for n in (3, 4, 1, 9, 2, 5)]
    assert graphs_of(wrap, Window(), inputs, lambda m, call: m.register_buffer("last", torch.ones(2, 9)[:, 2 + call :]))


@WRAPS
def test_a_table_for_the_longest_length(wrap: Callable[..., Any]) -> None:
    """No table, a longer one, and a table that is long enough: one graph of constants, then one for all sizes."""
    lengths = (8, 17, 1, 64, 13, 100, 5, 111, 3)
    assert graphs_of(wrap, Positions(), [torch.rand(2, n, n) for n in lengths]) == 4


@WRAPS
def test_a_number_of_points_that_changes(wrap: Callable[..., Any]) -> None:
    assert graphs_of(wrap, Points(), [torch.rand(4, 3)] * 6, other_points, train=True) == 2


@pytest.mark.parametrize("train", [False, True])
def test_layers_that_are_pruned(train: bool) -> None:
    module = Channels().train(train)
    assert graphs_of(symshape.compile, module, [torch.rand(2, 3, 8, 8)] * 5, other_channels, train=train) == 2


def test_sizes_that_are_declared_constants() -> None:
    wrap = functools.partial(symshape.compile, dynamic=False)
    assert graphs_of(wrap, Cache(), [torch.rand(2, 1, 4)] * 3) == 3


def test_layers_of_one_class_have_constants() -> None:
    """Each module is compared with itself: other sizes of another module make no symbols."""
    layers = [Points(), Points(), Points()]
    for layer, n in zip(layers, (4, 6, 7), strict=True):
        layer.at, layer.weight = nn.Parameter(torch.randn(n, 3)), nn.Parameter(torch.randn(n))
    x = torch.rand(4, 3)

    def fn(layer: Points, x: torch.Tensor) -> torch.Tensor:
        return layer(x) * layer.weight.shape[0]  # type: ignore[no-any-return]

    with Graphs() as graphs:
        compiled = symshape.compile(fn)
        for layer in layers * 2:
            torch.testing.assert_close(compiled(layer, x), fn(layer, x))
    assert graphs.read().graphs == 3
