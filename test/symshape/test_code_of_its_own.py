"""Functions and layers of PyTorch, compiled one by one: the limit of graphs counts for each by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import symshape


@pytest.fixture(autouse=True)
def _no_limit_is_hit() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield
    torch._dynamo.reset()


def _graphs_of(calls: list[Callable[..., Any]]) -> list[int]:
    """How many graphs each has, at several sizes, compared with eager mode."""
    found = []
    for call in calls:
        compiled, before = symshape.compile(call), counters["stats"]["unique_graphs"]
        for size in (3, 1, 0, 7):
            x = torch.rand(size, 4)
            torch.testing.assert_close(compiled(x), call(x))
        found.append(counters["stats"]["unique_graphs"] - before)
    return found


def test_functions() -> None:
    functions = [torch.sin, torch.cos, torch.tan, torch.exp, torch.log1p, torch.sigmoid, torch.tanh, torch.erf]
    functions += [torch.relu, nn.functional.gelu, nn.functional.silu, torch.abs]
    functions += [functools.partial(torch.clamp, min=0.5), functools.partial(torch.softmax, dim=-1)]
    assert set(_graphs_of(functions)) == {1}
    assert set(_graphs_of(functions[:3])) == {0}  # compiled before


def test_layers_of_different_structure() -> None:
    kinds = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.CELU, nn.Mish, nn.Sigmoid, nn.Softplus)
    assert set(_graphs_of([nn.Sequential(nn.Linear(4, 5), kind()) for kind in kinds])) == {1}
    assert set(_graphs_of([nn.Linear(4, width) for width in range(2, 12)])) == {1}


def test_equal_layers_share_their_graph() -> None:
    assert _graphs_of([nn.Sequential(nn.Linear(4, 5), nn.ReLU()) for _ in range(12)]) == [1, *[0] * 11]
