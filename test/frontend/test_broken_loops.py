"""A graph break in a loop: what comes before it is a graph, and results are eager mode's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape
from symshape.tools.measure import Graphs


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def tokens(x: Tensor) -> Tensor:
    """Stops where all rows are done."""
    weights = (x.float() * 0.5).softmax(1).cumsum(1)
    x = torch.cat([x, (weights * 10).round().long()[:, -1:]], 1)
    done = torch.zeros(x.shape[0], dtype=torch.bool)
    for i in range(6):
        following = (x[:, -1] * 7 + i) % 5
        x = torch.cat([x, following[:, None]], 1)
        done = done | (following == 3)
        if bool(done.all()):
            break
    return x * 2


def doubled(x: Tensor) -> tuple[Tensor, int]:
    """Of a ``while`` some steps may be a part of the graph."""
    y, steps = x.abs() + 1, 0
    y = y / (y.sum() + 1)
    while steps < 2 or bool((y.sum() < 8) & (y.sum() > 0)):
        y, steps = y * 2, steps + 1
    return y.sin(), steps


def appended(x: Tensor) -> list[float]:
    """A list that is changed before the loop and in it."""
    found, y = [1.0], x.exp() * 2
    found.append(2.0)
    for _ in range(3):
        y = y + 1
        found.append(y.sum().item())
        torch._dynamo.graph_break()
    return found


def followed(x: Tensor) -> Tensor:
    """Gradients pass from the rest of the function into the graph."""
    y = x.sin() * 3
    z = y.exp().cumsum(0)
    for _ in range(4):
        z = z * 1.5
        if z.sum() > 100:
            break
    return z + y


@pytest.mark.sample(3)
@pytest.mark.parametrize("compile_", (symshape.compile, lambda f: torch.compile(f, backend="symshape", dynamic=True)))
@pytest.mark.parametrize("function", (tokens, doubled, appended, followed))
def test_the_rest_runs_as_it_is(function: Callable[..., Any], compile_: Any) -> None:
    compiled = compile_(function)
    for rows in (3, 0, 1, 7):
        shape = (rows, 2)
        x = torch.randint(0, 9, shape) if function is tokens else torch.randn(shape, requires_grad=function is followed)
        actual, expected = compiled(x), function(x)
        torch.testing.assert_close(actual, expected)
        if function is followed:
            torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (actual, expected)))


@pytest.mark.parametrize("function", (tokens, followed))
def test_one_graph_of_what_comes_before(function: Callable[..., Any]) -> None:
    compiled = symshape.compile(function)
    with Graphs() as graphs:
        for rows in (3, 1, 7):
            compiled(torch.randint(0, 9, (rows, 2)) if function is tokens else torch.randn(rows, 2))
    assert graphs.graphs == 1


def test_one_graph_is_asked_for() -> None:
    with pytest.raises(Exception, match=r"graph break|data-dependent|Data-dependent"):
        symshape.compile(tokens, fullgraph=True)(torch.randint(0, 9, (3, 2)))
