"""Views that custom autograd functions return, and views with hooks, have eager mode's gradient and memory wherever
they are returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape


class Reverse(torch.autograd.Function):
    """The identity, with a reversed gradient, as domain-adversarial networks have it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return -ctx.factor * gradients[0], None


def _with_features(x: torch.Tensor) -> Any:
    features = x * 3.0
    return features, Reverse.apply(features, 2.0)  # type: ignore[no-untyped-call]


def _turned(x: torch.Tensor) -> Any:
    return (Reverse.apply(x, 2.0).t(),)  # type: ignore[no-untyped-call]


def _in_two_forms(x: torch.Tensor) -> Any:
    reverse = Reverse.apply(x.sin(), 2.0)  # type: ignore[no-untyped-call]
    return reverse, reverse.t(), reverse[:, 1:3]


def _beside_the_input(x: torch.Tensor) -> Any:
    reverse = Reverse.apply(x, 2.0)  # type: ignore[no-untyped-call]
    return reverse, reverse[:, 1:], x.view(-1)


def _hooked(x: torch.Tensor) -> Any:
    turned = x.t()
    turned.register_hook(lambda gradient: gradient * 3)
    return turned[1:], x.view(-1)


def _hooked_beside_its_operand(x: torch.Tensor) -> Any:
    features = x * 3.0
    row = features.view(-1)
    row.register_hook(lambda gradient: gradient.clamp(max=1))
    return features, row


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_views_made_without_gradients_have_none(wrap: Callable[..., Any]) -> None:
    def function(x: torch.Tensor) -> Any:
        features = x * 3.0
        with torch.no_grad():
            target, turned = features.view(-1), x.t()
        return features, target, turned

    compiled = wrap(function)
    for n in (3, 1, 5):
        found = []
        for one in (compiled, function):
            leaf = torch.linspace(-1, 1, 4 * n).view(n, 4).requires_grad_()
            features, target, turned = one(leaf)
            ((features.view(-1) - target + 1).pow(2).sum() + turned.sum()).backward()
            found.append((leaf.grad, target.data_ptr() - features.data_ptr(), turned.data_ptr() - leaf.data_ptr()))
            assert not turned.requires_grad
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(
    "function", [_with_features, _turned, _in_two_forms, _beside_the_input, _hooked, _hooked_beside_its_operand]
)
def test_the_gradient_is_kept(function: Callable[..., Any], wrap: Callable[..., Any]) -> None:
    compiled = wrap(function)
    for n in (3, 1, 5):
        found = []
        for one in (compiled, function):
            leaf = torch.linspace(-1, 1, 4 * n).view(n, 4).requires_grad_()
            results = one(leaf)
            torch.autograd.backward(results, [torch.full_like(x, i + 1.0) for i, x in enumerate(results)])
            begin = (leaf if function in (_turned, _beside_the_input, _hooked) else results[0]).data_ptr()
            places = [(x.data_ptr() - begin, n > 1 and x.stride()) for x in results]
            found.append((*(x.detach() for x in results), leaf.grad, places))
        torch.testing.assert_close(found[0][:-1], found[1][:-1])
        assert found[0][-1] == found[1][-1]
