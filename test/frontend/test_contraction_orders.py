"""``einsum`` of three operands where opt_einsum is installed, which a stand-in is here: one graph for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape
from symshape.tools.measure import Graphs

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """Stands in for opt_einsum. Like it, it takes each size as a number. The shapes that it was asked about."""
    found: list[list[tuple[int, ...]]] = []

    def contract_path(_equation: str, *operands: Any, shapes: bool = False, optimize: Any = None) -> Any:
        sizes = operands if shapes else [operand.shape for operand in operands]
        found.append([tuple(int(size) for size in shape) for shape in sizes])
        return [(1, 2), (0, 1)], None

    module: Any = torch.backends.opt_einsum
    monkeypatch.setattr(module.m, "is_available", lambda: True)
    monkeypatch.setattr(module.m, "get_opt_einsum", lambda: SimpleNamespace(contract_path=contract_path))
    monkeypatch.setattr(module.m, "enabled", True)
    torch._dynamo.reset()
    return found


def _attended(context: Tensor, q: Tensor, weights: Tensor) -> Tensor:
    return torch.einsum("bde,bnd,bn->bne", context, q, weights)


def _inputs(b: int, n: int) -> list[Tensor]:
    shapes = ((b, 3, 4), (b, n, 3), (b, n))
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit], ids=lambda entry: entry.__name__)
def test_one_graph(entry: Callable[..., Any], asked: list[Any]) -> None:
    compiled = entry(_attended)
    with Graphs() as graphs:
        for n, size in enumerate(((2, 5), (3, 7), (1, 1), (4, 0))):
            inputs = _inputs(*size)
            result, expected = compiled(*inputs), _attended(*inputs)
            torch.testing.assert_close(result, expected)
            for one, other in zip(*(torch.autograd.grad(y.square().sum(), inputs) for y in (result, expected))):
                torch.testing.assert_close(one, other)
            if n == 0:
                assert asked[0] == [(2, 3, 4), (2, 5, 3), (2, 5)]
    assert graphs.graphs <= 1


def test_sizes_from_the_data() -> None:
    def program(x: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        rows = x[mask]
        return torch.einsum("nd,de,n->ne", rows, weights, rows[:, 0])

    compiled = symshape.compile(program, fullgraph=True)
    for n in (6, 9, 1):
        inputs = torch.randn(n, 3), torch.arange(n) % 3 != 1, torch.randn(3, 2)
        torch.testing.assert_close(compiled(*inputs), program(*inputs))
