"""Sizes that are compared with numbers in tensors, and sizes that are quotients which ``torch.div`` made tensors of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape.tools.measure import Graphs


def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    assert list(x.size()) == [3, n.max(), 2]
    return x * 2


def chunked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], torch.div(x.shape[1], 4, rounding_mode="trunc"), 4, x.shape[2]).sum(1) * n[0]


def reshaped(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.reshape(x, (3, torch.div(x.shape[1], 4, rounding_mode="floor"), -1)).sum(1) * n[0]


def plain(function: Any) -> Any:
    """With constants at first."""
    return torch.compile(function, backend="symshape", options={"strict": True}, fullgraph=True)


@pytest.mark.parametrize(
    ("function", "compiling", "expected"),
    [(checked, symshape.compile, 2), (chunked, symshape.compile, 1), (chunked, plain, 2), (reshaped, plain, 2)],
)
def test_one_graph_for_all_sizes(function: Any, compiling: Any, expected: int) -> None:
    """What follows an assertion on sizes and data together is a graph of its own."""
    torch._dynamo.reset()
    compiled = compiling(function)
    with Graphs() as graphs:
        for length in (8, 4, 16, 12):
            x, n = torch.randn(3, length, 2), torch.tensor([2, length])
            torch.testing.assert_close(compiled(x, n), function(x, n))
    found = graphs.read()
    assert found.graphs == expected and not found.breaks


def test_lists_that_differ_are_an_error() -> None:
    compiled = symshape.compile(checked)
    x = torch.randn(3, 4, 2)
    torch.testing.assert_close(compiled(x, torch.tensor([4])), x * 2)
    for length in (5, 0):
        with pytest.raises(AssertionError):
            compiled(x, torch.tensor([length]))
