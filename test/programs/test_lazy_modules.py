"""Modules whose parameters get their sizes at the first call: compiled then, with eager's parameters and generators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import symshape


class Halves(torch.nn.modules.lazy.LazyModuleMixin, torch.nn.Module):
    """A lazy module of a user's: its parameter depends on two sizes, and a number is among its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.UninitializedParameter()

    def initialize_parameters(self, x: torch.Tensor, scale: int) -> None:
        if self.has_uninitialized_params():
            self.weight.materialize((x.size(1) // 2, x.size(2) * scale))
            torch.nn.init.normal_(self.weight)

    def forward(self, x: torch.Tensor, scale: int) -> torch.Tensor:
        return x[:, : self.weight.size(0)].repeat(1, 1, scale) * self.weight


class Net(torch.nn.Module):
    def __init__(self, convolution: Callable[..., torch.nn.Module], norm: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.halves = convolution(6, 3, padding=1), norm, Halves()
        self.last = torch.nn.LazyLinear(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(x)).relu().flatten(2)
        return self.last(self.halves(y, 2))


MODULES = {
    "1d": lambda: (Net(torch.nn.LazyConv1d, torch.nn.LazyBatchNorm1d()), (7,)),
    "2d": lambda: (Net(torch.nn.LazyConv2d, torch.nn.LazyBatchNorm2d()), (5, 4)),
    "transposed": lambda: (Net(torch.nn.LazyConvTranspose2d, torch.nn.LazyInstanceNorm2d()), (3, 6)),
}


@pytest.mark.parametrize("name", MODULES)
def test_equals_eager(name: str) -> None:
    (theirs, image), (ours, _) = MODULES[name](), MODULES[name]()
    compiled = symshape.compile(ours, fullgraph=True)
    for batch in (3, 8, 2, 1):
        x = torch.randn(batch, 4, *image)
        found = []
        for function in (compiled, theirs):
            torch.manual_seed(11)
            y = function(x)
            found.append((y.detach(), torch.rand(3)))
            y.square().sum().backward()
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-5)
        grads = [{k: p.grad for k, p in module.named_parameters()} for module in (ours, theirs)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
    assert type(ours.first) is type(theirs.first) and not hasattr(ours.first, "_initialize_hook")


def test_parameters_are_drawn_once() -> None:
    """Where the graph is broken, and for each of two modules that share a frame."""

    def function(a: torch.nn.Module, b: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = a(x)
        torch._dynamo.graph_break()
        return a(x) + b(y)

    theirs, ours = ([torch.nn.LazyLinear(4) for _ in range(2)] for _ in range(2))
    compiled = symshape.compile(function)
    for n in (3, 5):
        x = torch.randn(n, 6)
        found = []
        for call, modules in ((compiled, ours), (function, theirs)):
            torch.manual_seed(2)
            found.append((call(*modules, x), torch.rand(2)))
        torch.testing.assert_close(*found)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
