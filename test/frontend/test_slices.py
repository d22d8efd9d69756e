"""Slices that leave out elements at the ends: one graph for all sizes, those included at which nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import symshape

Tensor = torch.Tensor


def ends(x: Tensor) -> tuple[Tensor, ...]:
    """Views among the results."""
    return x[:, 1:-1], x[:, 3:], x[:, :-2], x[:, 1:-1:2] * 2, x.t()[2:, 1:-1].exp()


def stencils(x: Tensor) -> tuple[Tensor, ...]:
    second = x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]
    variation = (x[:, 1:] - x[:, :-1]).abs().sum() + (x[1:] - x[:-1]).square().sum(0)
    return second, variation, x[:, 1:].softmax(1), x[:, 1:].reshape(-1).sin(), x[1:, 2:].sum(1)


def written(x: Tensor) -> tuple[Tensor, ...]:
    shifted, inner = x * 1, torch.zeros_like(x)
    shifted[:, 1:] = x[:, :-1]
    inner[:, 1:-1] += x[:, 1:-1] * 2
    return shifted, inner


def differences(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.diff(),
        torch.diff(x, n=2),
        x.diff(dim=0, append=x[:1]),
        torch.diff(x, 3, prepend=x),
        (x > 0).diff().float(),
    )


def check(compiled: Any, function: Callable[..., Any], x: Tensor) -> None:
    found = []
    for run in (compiled, function):
        leaf = x.clone().requires_grad_()
        results = run(leaf)
        sum(one.square().sum() for one in results if one.requires_grad).backward()
        assert [one.stride() for one in results if one.numel()] == [
            one.stride() for one in (found[0] if found else results)[: len(results)] if one.numel()
        ]
        found.append((*results, leaf.grad))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(11)
@pytest.mark.parametrize("first", [5, 0, 1])
@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(("function", "graphs"), [(ends, 1), (stencils, 1), (written, 1), (differences, 1)])
def test_sizes(function: Callable[..., Any], graphs: int, compile: Callable[..., Any], first: int) -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled: Any = compile(function)
    for size in (first, 0, 1, 2, 3, 4, 17):
        check(compiled, function, torch.arange(4.0 * size).sin().view(4, size))
    found = len(compiled.entries) if compile is symshape.jit else counters["stats"]["unique_graphs"]
    assert found <= graphs


def test_a_question_of_a_size_is_a_guard() -> None:
    """Also on the slice being no shorter than the dim less what it leaves out."""

    def function(x: Tensor) -> Tensor:
        y = x[2:]
        return y * 3 if y.shape[0] > 4 else y.expand(3, -1, -1).sum(0) if y.shape[0] == 0 else y[0] + x[-1]

    compiled = symshape.compile(function)
    for size in (9, 0, 1, 2, 3, 7):
        x = torch.randn(size, 2)
        torch.testing.assert_close(compiled(x), function(x))


def test_derivatives() -> None:
    """RuntimeError of a dim that is too short, as in eager mode."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        rows, columns = x.shape
        return (
            *torch.gradient(x, spacing=(1 / rows, 0.5)),
            torch.gradient(x, dim=1, spacing=columns / 2, edge_order=2)[0],
            torch.linalg.matrix_norm(x, 2) + torch.linalg.matrix_norm(x[None], ord=-2, dim=(2, 1), keepdim=True),
        )

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function)
    for sizes in ((3, 5), (4, 9), (2, 7), (5, 6)):  # wide ones: singular values of tall ones have another gradient
        check(compiled, function, torch.randn(sizes))
    assert counters["stats"]["unique_graphs"] == 1
    with pytest.raises(RuntimeError, match="at least edge_order"):
        compiled(torch.randn(3, 2))
