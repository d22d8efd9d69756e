"""Indices that are sizes, integers of the caller, or in the data, beside others in a tuple: one graph for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape
from symshape.tools.measure import Graphs


def _last(x: Tensor, i: int, at: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    return x[n - 1, 1:] * 2, x[:, x.shape[1] - 1], x[n // 2, None], x[..., n - 1, 0], x[None, n - 1, :, 1] + 1


def _given(x: Tensor, i: int, at: Tensor) -> tuple[Tensor, ...]:
    return x[:, i] + 1, x[i, i], x[torch.tensor([0, 1]), i] * 2


def _in_the_data(x: Tensor, i: int, at: Tensor) -> tuple[Tensor, ...]:
    j = at.item()
    return x[j, 1:] * 2, x[:, j] + 1, x[j] + 1, x[torch.tensor([0, 1]), j] * 2, x[j, j].exp()


def _written(x: Tensor, i: int, at: Tensor) -> Tensor:
    n, y = x.shape[0], x.clone()
    y[n - 1, 1:] = 0
    y[..., x.shape[1] - 1, :] = x[:, 0] * 2
    y[n // 2, 0] += x[0, 1]
    y[:, i] *= 3
    y[at.item(), 0] = x[1, 1]
    return y


def _view(x: Tensor, i: int, at: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    part = y[1:, i]
    part.mul_(2)
    return y, part


@pytest.mark.parametrize("function", [_last, _given, _in_the_data, _written, _view])
@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_one_graph(wrap: Callable[..., Any], function: Callable[..., Any]) -> None:
    compiled = wrap(function)
    with Graphs() as graphs:
        for n in (7, 4, 3, 17, 40):
            for place in (2, n - 1):
                found = []
                for call in (compiled, function):
                    torch.manual_seed(n)
                    x = torch.randn(n, n + 1, 3, requires_grad=True)
                    results = call(x, place, torch.tensor(place))
                    results = results if isinstance(results, tuple) else (results,)
                    gradient = torch.autograd.grad(sum((one * one).sum() for one in results), x)
                    found.append((results, gradient))
                torch.testing.assert_close(found[0], found[1])
    if wrap is symshape.compile:
        assert graphs.read().graphs == 1
    else:
        assert len(compiled.entries) == 1


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_a_tensor_as_an_integer(wrap: Callable[..., Any]) -> None:
    """``x[t]`` of a tensor without dims is a view, which may be written to; a boolean one is a mask."""

    def fn(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        y = x.clone()
        y[:, at] = x[at, 0]
        y[at] += 1
        y[0, at].mul_(2)
        return y, x[at] * 2, x[at, 1:] + 1, x[x.argmax(0)[0]] + x[at.int()], x[torch.tensor(1)] - 1

    compiled = wrap(fn)
    for n in (5, 3, 8):
        x = torch.randn(n, n)
        for place in (0, 2, -1):
            torch.testing.assert_close(compiled(x, torch.tensor(place)), fn(x, torch.tensor(place)))
        with pytest.raises(IndexError, match="out of"):
            compiled(x, torch.tensor(n))
    assert wrap is symshape.compile or len(compiled.entries) == 1


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_in_a_vmap(wrap: Callable[..., Any]) -> None:
    """A tensor that is one of many has no one number."""

    def fn(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        each = torch.vmap(lambda a, i: a[i] * 2)(x, torch.arange(x.shape[0]) % 3)
        return each, torch.vmap(lambda a: a[at] + a[a.shape[0] - 1, None])(x)

    compiled = wrap(fn)
    for n in (7, 2, 5):
        x, at = torch.randn(n, n + 2), torch.tensor(2)
        torch.testing.assert_close(compiled(x, at), fn(x, at))


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_from_the_end_and_out_of_bounds(wrap: Callable[..., Any]) -> None:
    def fn(x: Tensor, at: Tensor) -> Tensor:
        return x[:, at.item()] + 1

    compiled = wrap(fn)
    for n in (5, 2, 9):
        x = torch.randn(3, n)
        for place in (0, n - 1, -1, -n):
            assert torch.equal(compiled(x, torch.tensor(place)), x[:, place] + 1)
        for place in (n, -n - 1):
            with pytest.raises(IndexError, match="out of"):
                compiled(x, torch.tensor(place))


def test_a_gradient_of_what_is_written() -> None:
    """A tensor requires a gradient once it holds one that does, and its buffer is the caller's."""

    def fn(x: Tensor, p: Tensor, i: int) -> Tensor:
        x[:, i] = p
        return x.sum(0)

    compiled = symshape.compile(fn)
    for n in (7, 3, 12):
        found = []
        for call in (compiled, fn):
            x, p = torch.zeros(3, n), torch.ones(3, requires_grad=True)
            result = call(x, p, n - 1)
            result.square().sum().backward()
            found.append((result, x, x.requires_grad, p.grad))
        torch.testing.assert_close(found[0], found[1])


def test_whoever_compiles_first() -> None:
    """Dynamo keeps what handles a built-in function: that is neither ours for others, nor theirs for ours."""

    def fn(x: Tensor) -> Tensor:
        return x[x.shape[0] - 1, 0] * 1

    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(fn, backend="eager", dynamic=True)(torch.randn(5, 3))
        torch._dynamo.reset()
        compiled = symshape.compile(fn)
        with Graphs() as graphs:
            for n in (7, 2, 4):
                x = torch.randn(n, 3)
                assert torch.equal(compiled(x), fn(x))
        assert graphs.read().graphs == 1
