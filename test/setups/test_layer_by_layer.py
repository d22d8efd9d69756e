"""A model whose layers are compiled one by one: layers of one class share their graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import symshape

LAYERS = 12
SIZES = ((2, 5), (3, 8), (7, 2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _replaced(model: Stack) -> None:
    for i, layer in enumerate(model.layers):
        model.layers[i] = symshape.compile(layer)


def _in_place(model: Stack) -> None:
    for layer in model.layers:
        layer.compile(backend="symshape", dynamic=True)


@pytest.mark.parametrize(
    "compile_layers, training",
    [
        (_replaced, True),
        (_in_place, False),
        pytest.param(_replaced, False, marks=pytest.mark.long),
        pytest.param(_in_place, True, marks=pytest.mark.long),
    ],
)
def test_layers_share_graphs(
    compile_layers: Callable[[Stack], None], training: bool, graphs: Callable[[], int]
) -> None:
    ours = Stack()
    theirs = copy.deepcopy(ours)
    compile_layers(ours)
    for batch, length in SIZES:
        x = torch.randn(batch, length, 8)
        with torch.set_grad_enabled(training):
            actual, expected = ours(x), theirs(x)
        torch.testing.assert_close(actual, expected)
        if training:
            actual.square().mean().backward()
            expected.square().mean().backward()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.grad, b.grad)
    assert graphs() <= 3
