"""Reused memory: values are eager's, and nothing that is still alive is overwritten."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with

WIDTH = 8
SIZES = (5, 33, 0)


def weight() -> torch.Tensor:
    return torch.linspace(-1, 1, WIDTH * WIDTH).reshape(WIDTH, WIDTH) / WIDTH  # products stay near 1


def chain(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Each kernel's input dies with it; products need theirs in memory."""
    h = torch.nn.functional.gelu(x @ w)
    h = torch.relu(h @ w + 1)
    h = torch.softmax(h @ w, -1)
    return torch.tanh(h @ w) - 1


def views(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Views of tensors that die otherwise: returned, transposed for a product, read at another point."""
    a = x @ w
    shown = a[:, 1:]
    b = torch.exp(-a) + 1
    c = b.t() @ x
    turned = torch.sigmoid(c.t()) + c
    return shown, turned, (x @ turned).roll(1, 0) + b


def several(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Several outputs, two of them of one tensor, one that another output is computed from."""
    a = x @ w
    b = a * 2 + 1
    c = torch.relu(b) @ w
    d = c - b
    return b, b.t(), d, torch.cos(d @ w), c.sum(0)


def mutated(x: torch.Tensor, w: torch.Tensor) -> Any:
    """An argument that is written to, read before and after."""
    before = x @ w
    x.mul_(2).add_(before)
    after = torch.sin(before) @ w
    w.sub_(1)
    return torch.exp(after) + x, after + before


def types(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Memory of one element type for another; halves and flags are stored as such."""
    a = x @ w
    i = (a * 10).to(torch.int32)
    j = torch.sort(i, 1)[0] + 1
    flags = torch.sort(j > 3, 1)[0]
    half = torch.sort(torch.where(flags, a, -a).to(torch.bfloat16), 1)[0] * 2
    return torch.sort(half.float() @ w, 1)[0] + j, torch.sort(half + 1, 0)[0], ~flags


def shapes(x: torch.Tensor, w: torch.Tensor) -> Any:
    """As many elements in other dims, and a permuted layout."""
    a = torch.exp(x @ w).reshape(-1, 2)
    b = torch.sort(a.reshape(-1, WIDTH) * 2, 1)[0].reshape(-1, 2, WIDTH // 2)
    c = torch.sort(b.transpose(1, 2) + 1, 1)[0]
    return torch.sort(c.reshape(-1, WIDTH) - 3, 1)[0].t() * 2


CASES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    f.__name__: f for f in (chain, views, several, mutated, types, shapes)
}


def storages(values: Any) -> list[int]:
    """Which results lie in one storage: for each the first that does."""
    pointers = [v.untyped_storage().data_ptr() for v in values]
    return [pointers.index(p) for p in pointers]


@pytest.mark.parametrize("name", CASES)
def test_values_and_storages_are_those_of_eager(name: str) -> None:
    torch._dynamo.reset()
    function = CASES[name]
    reports: list[Any] = []
    compiled = compile_with(function, functools.partial(symshape_backend, reports=reports))
    kept: list[tuple[Any, Any]] = []
    for size in SIZES:
        x = torch.randn(size, WIDTH)
        args, again = (x.clone(), weight()), (x.clone(), weight())
        expected, actual = function(*args), compiled(*again)
        kept.append(((*args, *_tuple(expected)), (*again, *_tuple(actual))))
        if size:
            assert storages(_tuple(actual)) == storages(_tuple(expected))
    # All at the end: a later call must not have written to an earlier one's results.
    for expected, actual in kept:
        for e, a in zip(expected, actual, strict=True):
            torch.testing.assert_close(a, e)
            assert a.stride() == e.stride() or min(a.shape) <= 1
    for report in reports:
        found = report.statistics["reuse-buffers"]
        assert found["reused"] + found["in_place"] > 0


def test_arguments_that_share_memory() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
        a = (x + 1) @ w
        return torch.relu(a * 2) @ w + y, y * 3

    compiled = symshape.compile(function)
    for size in (5, 8):
        base = torch.randn(size + 1, WIDTH)
        args = base[:-1], base[1:], weight()
        before = base.clone()
        for e, a in zip(function(*args), compiled(*args), strict=True):
            torch.testing.assert_close(a, e)
        assert torch.equal(base, before)


def test_gradients() -> None:
    """What backward needs of forward is a result of forward."""
    torch._dynamo.reset()

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.gelu(x @ w)
        h = torch.layer_norm(h @ w + x, (WIDTH,))
        return torch.softmax(h @ w, -1) @ w

    compiled = symshape.compile(function)
    for size in (5, 33):
        x = torch.randn(size, WIDTH)
        grads = []
        for f in (function, compiled):
            leaves = x.clone().requires_grad_(), weight().requires_grad_()
            f(*leaves).square().sum().backward()
            grads.append([leaf.grad for leaf in leaves])
        for e, a in zip(*grads, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


def _tuple(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)
