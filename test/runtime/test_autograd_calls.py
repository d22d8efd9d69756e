"""Calls of plain graphs through autograd: the same gradients, errors and hooks as with AOTAutograd's own code."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.frontend.patches.registry import CURRENT
from symshape.frontend.patches.speed import plain_calls
from symshape.runtime import autograd_calls

pytestmark = pytest.mark.skipif(
    all(patch.name != "calls of plain graphs" for patch in CURRENT), reason="not for this version of PyTorch"
)
_number = contextvars.ContextVar("number", default=0)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls that took the short way."""
    torch._dynamo.reset()  # code that is compiled already has the usual calls
    seen: list[str] = []
    usual_forward, usual_backward = autograd_calls.forward_of, autograd_calls.backward_of

    def forward_of(run: Any, *others: Any) -> Any:
        def named(args: list[Any]) -> Any:
            seen.append("forward")
            return run(args)

        return usual_forward(named, *others)

    def backward_of(run: Any, *others: Any) -> Any:
        def named() -> Any:
            seen.append("backward")
            return run()

        return usual_backward(named, *others)

    monkeypatch.setattr(plain_calls, "forward_of", forward_of)
    monkeypatch.setattr(plain_calls, "backward_of", backward_of)
    yield seen


def _results(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y = x @ w
    return y.sin(), torch.nn.functional.linear(x[None], w.t()), (y > 0).sum()


def _gradients(fn: Any, n: int, tangent: Any) -> list[torch.Tensor]:
    torch.manual_seed(n)
    x, w = torch.randn(n, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    found = fn(x, w)
    assert not found[2].requires_grad
    return [*found, *torch.autograd.grad(found[:2], [x, w], [tangent(one) for one in found[:2]])]


@pytest.mark.parametrize(
    "tangent",
    [
        torch.ones_like,
        lambda y: torch.tensor(2.0).expand(y.shape),  # is copied to be contiguous
        lambda y: torch.arange(2.0 * y.numel()).view(*y.shape, 2)[..., 0],
    ],
)
def test_gradients_are_those_of_eager_mode(plain: list[str], tangent: Any) -> None:
    compiled = symshape.compile(_results)
    for n in (5, 2, 7):
        torch.testing.assert_close(_gradients(compiled, n, tangent), _gradients(_results, n, tangent))
    assert plain == ["forward", "backward"] * 3


def test_results_without_a_gradient(plain: list[str]) -> None:
    compiled = symshape.compile(_results)
    for n in (3, 6):
        x, w = torch.randn(n, 4, requires_grad=True), torch.randn(4, 3)
        expected = torch.autograd.grad(_results(x, w)[0].sum(), x, retain_graph=True)
        found = compiled(x, w)[0].sum()
        for _ in range(2):
            torch.testing.assert_close(torch.autograd.grad(found, x, retain_graph=True), expected)
        torch.autograd.grad(found, x)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(found, x)
    assert plain.count("backward") >= 6


def test_unusual_backward_calls_are_left_to_aot_autograd(plain: list[str]) -> None:
    compiled = symshape.compile(lambda x: x.sin() * x)
    x = torch.randn(6, requires_grad=True)
    compiled(x).sum().backward()
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()
    (rows,) = torch.autograd.grad(compiled(x), x, torch.eye(6), is_grads_batched=True)
    torch.testing.assert_close(rows, torch.autograd.functional.jacobian(lambda x: x.sin() * x, x))
    result = compiled(x).sum()
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
            result.backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert "backward" in plain


def test_saved_tensors_go_through_hooks(plain: list[str]) -> None:
    compiled = symshape.compile(lambda x: x.exp() * 2)
    packed: list[torch.Tensor] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        packed.append(x)
        return x

    for n in (4, 9):
        x = torch.randn(n, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x + 1):
            result = compiled(x)
        result.sum().backward()
        assert x.grad is not None and not torch.allclose(x.grad, 2 * x.exp())
    assert packed and plain


def test_memory_written_before_backward_is_an_error(plain: list[str]) -> None:
    compiled = symshape.compile(lambda x, y: x * y)
    for n in (4, 9):
        x, y = torch.randn(n, requires_grad=True), torch.randn(n)
        result = compiled(x, y)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
    assert plain


def test_backward_sees_context_variables_of_its_caller(plain: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    usual = autograd_calls.in_context_of_backward

    def recorded(run: Any, args: list[Any]) -> Any:
        return usual(lambda args: (seen.append(_number.get()), run(args))[1], args)

    monkeypatch.setattr(autograd_calls, "in_context_of_backward", recorded)
    compiled = symshape.compile(lambda x: x.cos())
    token = _number.set(7)
    try:
        for n in (3, 5):
            x = torch.randn(n, requires_grad=True)
            compiled(x).sum().backward()
            torch.testing.assert_close(x.grad, -x.detach().sin())
    finally:
        _number.reset(token)
    assert seen == [7, 7] and plain


def test_graphs_that_write_to_inputs_or_return_views_are_not_plain(plain: list[str]) -> None:
    def fn(x: torch.Tensor, running: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        running.mul_(0.5).add_(x.detach().mean())
        return x.t(), x * 2

    compiled = symshape.compile(fn)
    for n in (3, 5):
        x, running, other = torch.randn(n, 2, requires_grad=True), torch.ones(()), torch.ones(())
        found, expected = compiled(x, running), fn(x, other)
        torch.testing.assert_close((*found, running), (*expected, other))
        gradients = [torch.autograd.grad(one[0].sum() + one[1].sum(), x)[0] for one in (found, expected)]
        torch.testing.assert_close(*gradients)
    assert plain == []
