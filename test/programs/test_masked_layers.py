"""Layers over what a mask selects, statistics and all: one graph, trained beside eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.report import GraphReport

Tensor = torch.Tensor


class MaskedBatchNorm(torch.nn.Module):
    """PyTorch issue 194166."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, h: Tensor, m: Tensor) -> Tensor:
        out = h.clone()
        out[m] = self.norm(h[m])
        return out


class MaskedLayers(torch.nn.Module):
    """With and without running statistics and weights, over images, for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.bare = torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False)
        self.images = torch.nn.BatchNorm2d(4)
        self.each = torch.nn.InstanceNorm1d(4, affine=True)

    def forward(self, h: Tensor, m: Tensor) -> Any:
        places = torch.arange(6.0).view(2, 3)
        images = h[:, :, None, None] * places.sin() + places
        rows = images[m]
        out = torch.zeros_like(h)
        out[m] = self.bare(h[m]).sin()
        return out, self.images(rows).pow(3).mean((0, 2, 3)), self.each(rows.flatten(2))


def chosen(n: int, count: int) -> Tensor:
    m = torch.zeros(n, dtype=torch.bool)
    m[torch.randperm(n)[:count]] = True
    return m


def compiled(module: torch.nn.Module) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, reports=reports)

    return compile_with(module, backend, fullgraph=True), reports


def step(run: Any, module: torch.nn.Module, x: Tensor, m: Tensor) -> Any:
    """One step of training: what it returned, the gradient of the input, parameters and buffers behind it."""
    x = x.clone().requires_grad_()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    optimizer.zero_grad()
    result = run(x, m)
    outputs = result if isinstance(result, tuple) else (result,)
    sum((y - 0.5).sin().mean() for y in outputs if y.numel()).backward()
    optimizer.step()
    return result, x.grad, {name: t.clone() for name, t in module.state_dict().items()}


@pytest.mark.parametrize(
    ("layer", "modes", "counts"),
    [
        (MaskedBatchNorm, (True, False), ((9, 5), (12, 12), (7, 0), (33, 20))),
        (MaskedLayers, (True,), ((9, 5), (12, 12), (33, 20))),
    ],
)
def test_training(layer: type[torch.nn.Module], modes: Any, counts: Any) -> None:
    torch.manual_seed(0)
    ours = layer()
    theirs = copy.deepcopy(ours)
    run, reports = compiled(ours)
    for training in modes:
        ours.train(training), theirs.train(training)
        for n, count in counts:
            x, m = torch.randn(n, 4), chosen(n, count)
            found, expected = step(run, ours, x, m), step(theirs, theirs, x, m)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(reports) == 2 * len(modes)  # forward and backward
    if layer is MaskedBatchNorm:  # nothing of a size in the data is left
        assert not any("unbacked_symbol" in report.stage("imported") for report in reports)


def test_one_selected_row_is_an_error_in_training() -> None:
    """As it is of a batch of one; running statistics stay as they were."""
    module = MaskedBatchNorm()
    run, reports = compiled(module)
    run(torch.randn(5, 4), chosen(5, 3))
    before = copy.deepcopy(module.state_dict())
    for function in (run, copy.deepcopy(module)):
        with pytest.raises(ValueError, match="Expected more than 1 value"):
            function(torch.randn(8, 4), chosen(8, 1))
    torch.testing.assert_close(module.state_dict(), before)


def test_the_gradient_of_a_loss_over_nan_is_nan() -> None:
    def loss(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return F.smooth_l1_loss(x[m], x[m].tanh() * 2) + F.huber_loss(x, x.sin())

    x, m = torch.randn(40) * 3, torch.arange(40) % 3 > 0
    x[::7] = float("nan")
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    symshape.compile(loss)(ours, m).backward()
    loss(theirs, m).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)
