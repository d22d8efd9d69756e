"""Convolutions: one graph for all batches, and results with eager mode's strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.tools.measure import Graphs

SIZES = ((4, 20, 12), (2, 5, 6), (16, 33, 31), (64, 7, 9), (1, 11, 8))
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "2d": lambda: nn.Conv2d(8, 16, 3, padding=1),
    "channels-last weight": lambda: nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last),
    "depthwise": lambda: nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
    "depthwise, channels-last weight": lambda: nn.Conv2d(8, 8, 3, groups=8).to(memory_format=torch.channels_last),
    "transposed": lambda: nn.ConvTranspose2d(8, 8, 3, stride=2),
    "1d": lambda: nn.Conv1d(8, 16, 3, padding=1),
}


def strides_of(x: torch.Tensor) -> list[int]:
    """Those of dims that have more than one element: eager mode's others are whatever a library gave them."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.sample(5)
@pytest.mark.parametrize("first", [0, -1], ids=["from-4", "from-1"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels-last"])
def test_one_graph(name: str, format: torch.memory_format, first: int) -> None:
    layer = LAYERS[name]()
    with Graphs() as graphs:
        compiled = symshape.compile(layer)
        for batch, height, width in (SIZES[first], *SIZES):
            x = torch.randn(batch, 8, width) if name == "1d" else torch.randn(batch, 8, height, width)
            x = (x if name == "1d" else x.to(memory_format=format)).requires_grad_()
            results, gradients = [], []
            for function in (compiled, layer):
                results.append(function(x))
                gradients += torch.autograd.grad(results[-1].square().sum(), x)
            torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-3)
            assert strides_of(results[0]) == strides_of(results[1])
            assert strides_of(gradients[0]) == strides_of(gradients[1])
    assert graphs.read().graphs == 1


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_one_channel_in_channels_last(wrap: Callable[..., Any]) -> None:
    """Rows, columns, channels: of one channel the order is in the strides alone."""
    layer = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()).to(memory_format=torch.channels_last)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return layer(x), torch.cat([x, x], 1), x + 1

    compiled = wrap(fn)
    for batch, height, width in SIZES:
        x = torch.randn(batch, 1, height, width).to(memory_format=torch.channels_last)
        for result, expected in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
            assert strides_of(result) == strides_of(expected)


@pytest.mark.parametrize("first", [0, -1], ids=["from-4", "from-1"])
def test_group_norm_of_channels_last(first: int) -> None:
    """Its gradient still asks whether the batch is larger than 1, in C++."""
    layer = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.Conv2d(8, 8, 3, padding=1))
    with Graphs() as graphs, torch.no_grad():
        compiled = symshape.compile(layer)
        for batch, height, width in (SIZES[first], *SIZES):
            x = torch.randn(batch, 8, height, width).to(memory_format=torch.channels_last)
            result, expected = compiled(x), layer(x)
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
            assert strides_of(result) == strides_of(expected)
    assert graphs.read().graphs == 1


def test_attention_among_convolutions() -> None:
    """What comes back from rows of channels is channels-last for each batch: a denoiser as diffusers writes it."""
    layer = nn.Conv2d(8, 8, 3, padding=1)

    def attend(x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        rows = x.view(batch, channels, height * width).transpose(1, 2)
        attended = nn.functional.scaled_dot_product_attention(rows, rows, rows)
        return layer(attended.transpose(1, 2).reshape(batch, channels, height, width) + x)

    with Graphs() as graphs, torch.no_grad():
        compiled = symshape.compile(attend)
        for batch, height, width in SIZES:
            x = torch.randn(batch, 8, height, width)
            torch.testing.assert_close(compiled(x), attend(x), rtol=1e-4, atol=1e-4)
    assert graphs.read().graphs == 1
