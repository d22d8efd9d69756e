"""Regions that are compiled once (``torch.compiler.nested_compile_region``): fused with what is around them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import symshape

Tensor = torch.Tensor
WIDTH, LAYERS = 8, 6


@torch.compiler.nested_compile_region
def region(x: Tensor, weight: Tensor) -> Tensor:
    return torch.sin(x @ weight) * 2


@torch.compiler.nested_compile_region
def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.cos(), inner(x) - x


@torch.compiler.nested_compile_region
def inner(x: Tensor) -> Tensor:
    return x.exp() + x.shape[0]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    @torch.compiler.nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.norm(x)))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def gradients(function: Any, *inputs: Tensor) -> list[Tensor]:
    given = [x.clone().requires_grad_() for x in inputs]
    result = function(*given)
    return [result, *torch.autograd.grad(result.square().sum(), given)]


def test_regions_of_functions() -> None:
    """Also in each other, with several results, and with sizes."""

    def program(x: Tensor, weight: Tensor) -> Tensor:
        a, b = pair(region(x, weight))
        return region(x + 1, weight) * a + b

    inputs = torch.randn(5, 4), torch.randn(4, 4)
    report = symshape.explain(program, *(x.requires_grad_() for x in inputs), options={"strict": True})
    for n in (5, 2, 1, 0, 31):
        x, weight = torch.randn(n, 4), torch.randn(4, 4)
        torch.testing.assert_close(
            gradients(report.run, x, weight), gradients(program, x, weight), rtol=1e-4, atol=1e-4
        )
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"]
    assert report.graphs[0].library_calls == ["aten.mm.default"] * 2


def test_regions_of_layers() -> None:
    """A size that a guard makes a number; the layers are found to be equal, and lowered once."""
    model = Layers()
    report = symshape.explain(model, torch.randn(5, WIDTH, requires_grad=True), options={"strict": True})
    for n in (5, 3, 1, 33):
        x = torch.randn(n, WIDTH)
        torch.testing.assert_close(gradients(report.run, x), gradients(model, x), rtol=1e-4, atol=1e-4)
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"]
    forward = report.graphs[0]
    assert set(forward.library_calls) == {"aten.addmm.default"}
    assert forward.statistics["outline-layers"]["layers"] >= LAYERS // 2
