"""Losses, norms and their gradients of empty batches: in the graph for all sizes, and in one compiled at size 0."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape

SIZES = (7, 0, 1, 13)


LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mse": lambda x: F.mse_loss(x, x.detach() * 2),
    "huber": lambda x: F.huber_loss(x, x.detach() * 2),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.detach() * 2),
    "soft_margin": lambda x: F.soft_margin_loss(x, x.detach().sign()),
    "multilabel_soft_margin": lambda x: F.multilabel_soft_margin_loss(x, (x > 0).float()),
    "logsigmoid": lambda x: F.logsigmoid(x * 30),
    "group_norm": lambda x: F.group_norm(x.sin().T[None], 2) * torch.arange(4.0)[:, None],
    "group_norm_of_weights": lambda x: F.group_norm((x.sin() * 2).T[None], 2, x.sum(0), x.mean(0).nan_to_num()),
}


def compare(compiled: Any, function: Any) -> None:
    for rows in SIZES:
        x = torch.linspace(-2, 3, 4 * rows).view(rows, 4).requires_grad_()
        other = x.detach().requires_grad_()
        expected, found = function(x), compiled(other)
        torch.testing.assert_close(found, expected, equal_nan=True)
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(other.grad, x.grad, equal_nan=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_one_graph_serves_no_rows(loss: Any) -> None:
    torch._dynamo.reset()
    counters.clear()
    compare(symshape.compile(loss, strict=True, fullgraph=True), loss)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_graph_of_no_rows(loss: Any) -> None:
    """A branch of the user's own makes the size a constant 0."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = loss(x)
        return y + 1 if x.shape[0] == 0 else y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch says of an error that we catch
        compare(symshape.compile(function, strict=True), function)
