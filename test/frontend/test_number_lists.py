"""``tolist()`` of floats: part of the graph where sizes are known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape.tools.measure import Graphs

Tensor = torch.Tensor


def _of_a_matrix(x: Tensor) -> Any:
    a, b = (x[:2, None] * torch.tensor([1.0, 2.0])).tolist()
    return torch.tensor([a, b]) @ x[:2], a[0] + 1, b


def _of_a_number(x: Tensor) -> Any:
    mean = x.double().mean().tolist()
    return x - mean, mean


def _with_gradients(x: Tensor) -> Any:
    slope, offset = (x[:2] * 2).tolist()
    return x * slope + offset


@pytest.mark.parametrize("program", [_of_a_matrix, _of_a_number, _with_gradients])
def test_known_sizes_are_one_graph(program: Any) -> None:
    with Graphs() as graphs:
        compiled = symshape.compile(program, fullgraph=True)
        for n in (4, 7, 2):
            x = torch.randn(n).requires_grad_(program is _with_gradients)
            torch.testing.assert_close(compiled(x), program(x))
            if x.requires_grad:
                gradients = [torch.autograd.grad(run(x).square().sum(), x)[0] for run in (compiled, program)]
                torch.testing.assert_close(*gradients)
    assert graphs.graphs == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_other_sizes_break_the_graph(dtype: torch.dtype) -> None:
    def program(x: Tensor) -> Any:
        return (x * 2).to(dtype).tolist(), x + 1

    compiled = symshape.compile(program)
    for n in (3, 0, 5):
        x = torch.randn(n)
        found, expected = compiled(x), program(x)
        assert found[0] == expected[0]
        assert torch.equal(found[1], expected[1])
    torch._dynamo.reset()
