"""``x.storage_offset()`` of views that begin anywhere: one graph for all offsets but 0 and 1, and eager's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.tools.measure import Graphs


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def of_argument(x: torch.Tensor) -> Any:
    return x.storage_offset(), x * 2 + x.storage_offset()


def of_view(x: torch.Tensor) -> Any:
    first, second = x.chunk(2)
    return second * second.storage_offset() + x.view(2, -1)[1:].storage_offset()


def of_copy(x: torch.Tensor) -> Any:
    return x * 2 + x.clone()[3:].storage_offset() + (x + 1).storage_offset()


def after_writing(x: torch.Tensor) -> Any:
    x[1:].mul_(2)
    return x * x.storage_offset()


def branching(x: torch.Tensor) -> Any:
    return x + 1 if x.storage_offset() > 2 else x - 1


def by_function(x: torch.Tensor) -> Any:
    return x.as_strided((2,), (1,), torch.Tensor.storage_offset(x) + 1) * 2


def strided(x: torch.Tensor) -> Any:
    return x.as_strided((2,), (1,)) * x[2:].as_strided((2,), (1,), 3)


def check(fn: Callable[..., Any], compiled: Callable[..., Any], offsets: tuple[int, ...]) -> int:
    base = torch.randn(30)
    with Graphs() as graphs:
        for offset in offsets:
            memories = base.clone(), base.clone()
            actual, expected = (one(m[offset : offset + 6]) for one, m in zip((compiled, fn), memories))
            torch.testing.assert_close(actual, expected)
            torch.testing.assert_close(*memories)
    assert not graphs.breaks
    return graphs.graphs


@pytest.mark.parametrize("offsets", [(0, 1, 2, 5, 0, 7, 1), (5, 7, 0, 2)], ids=str)
@pytest.mark.parametrize("fn", [of_argument, of_view, of_copy, after_writing, branching, by_function, strided])
def test_every_offset(fn: Callable[..., Any], offsets: tuple[int, ...]) -> None:
    limit = 3 + (fn is branching)
    assert check(fn, symshape.compile(fn, fullgraph=True), offsets) <= limit


def test_a_view_at_a_fixed_place_of_its_memory_under_torch_compile() -> None:
    check(strided, torch.compile(strided, backend="symshape", dynamic=True), (0, 3, 1, 5))


def test_a_parameter() -> None:
    class Module(torch.nn.Module):
        def __init__(self, offset: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(12)[offset : offset + 6])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.storage_offset() + self.weight

    x = torch.ones(6)
    for offset in (0, 4, 1, 5):
        module = Module(offset)
        torch.testing.assert_close(symshape.compile(module)(x), module(x))
