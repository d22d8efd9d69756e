"""Arguments that C++ takes as numbers only, given as tensors or as comparisons of sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape
from symshape.errors import CompileError

Tensor = torch.Tensor

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pad": lambda x, t: F.pad(x, (t, t + 1)),
    "pad by name": lambda x, t: F.pad(x, pad=(0, t), mode="constant", value=0.5) * 2,
    "pad reflect": lambda x, t: F.pad(x[None], (t, t), "reflect"),
    "pad computed": lambda x, t: F.pad(x, (0, torch.ceil(t / 2).to(torch.int64))),
    "padding": lambda x, t: F.conv1d(x[None], torch.ones(1, 4, 1), padding=t),
    "sizes": lambda x, t: x.new_zeros((t, 3)) + torch.zeros(t, 3) + torch.full((t,), 1.0)[:, None],
    "steps": lambda x, t: torch.linspace(0, 1, t),
    "repeat": lambda x, t: x.repeat(t, 1) + torch.tile(x, (t, 1)),
    "slices": lambda x, t: (x[:t] * 2, x.narrow(0, 0, t) + 1, x.split((t, 4 - t))[0].sin()),
    "roll": lambda x, t: torch.roll(x, (t,), (0,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(PROGRAMS[name], fullgraph=True)
    for n in (2, 1, 3):
        x, t = torch.randn(4, 4), torch.tensor(n)
        torch.testing.assert_close(compiled(x, t), PROGRAMS[name](x, t))
    assert counters["stats"]["unique_graphs"] == 1


def test_a_dim_that_is_unflattened_breaks_the_graph() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, t: Tensor) -> Tensor:
        return x.flatten().unflatten(0, (t, -1)).sum(0)

    compiled = symshape.compile(program)
    for n in (2, 1, 4):
        x, t = torch.randn(4, 4), torch.tensor(n)
        torch.testing.assert_close(compiled(x, t), program(x, t))


def test_a_list_of_numbers_that_is_read_twice() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, grid: Tensor) -> Tensor:
        total = x.sum()
        for height, width in grid.tolist():
            total = total + torch.ones(height, width).sum()
        for height, width in grid.tolist():
            total = total * height - width
        return total

    compiled = symshape.compile(program)
    for grid in ([[2, 3], [1, 4]], [[5, 1]], [[1, 1], [2, 2]]):
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x, torch.tensor(grid)), program(x, torch.tensor(grid)))


COMPARISONS: dict[str, Callable[[Tensor], Any]] = {
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 3),
    "keepdim": lambda x: (x.sum(1, keepdim=x.shape[1] > 3), torch.amax(x, 1, x.shape[1] > 3)),
    "descending": lambda x: x.sort(1, descending=x.shape[1] > 3).values,
    "largest": lambda x: torch.topk(x, 1, 1, largest=x.shape[1] > 3)[0],
    "norm": lambda x: torch.linalg.vector_norm(x, dim=2, keepdim=x.shape[1] > 3),
    "ceil": lambda x: F.avg_pool1d(x, 1, ceil_mode=x.shape[1] > 3),
    "dropout": lambda x: F.dropout(x, 0.5, training=x.shape[1] > 7) + 1,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_sizes_are_truth_values(name: str) -> None:
    """A graph for each outcome, as with ``if``, and no break."""
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(COMPARISONS[name], fullgraph=True)
    for n in (5, 2, 7, 1, 3):
        x = torch.randn(2, n, 4)
        torch.testing.assert_close(compiled(x), COMPARISONS[name](x))
    assert counters["stats"]["unique_graphs"] == (1 if name == "dropout" else 2)  # which stays out of training


def test_a_comparison_of_data_breaks_the_graph() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, t: Tensor) -> Tensor:
        return (x * 2).sum(0, keepdim=t.item() > 2) + 1

    compiled = symshape.compile(program)
    for n in (2, 3, 1):
        x, t = torch.randn(4, 4), torch.tensor(n)
        torch.testing.assert_close(compiled(x, t), program(x, t))


def test_jit_says_that_a_comparison_has_to_be_decided() -> None:
    """C++ reads the argument before anything of ours sees the call; ``bool`` makes it a guard."""
    x = torch.randn(2, 5, 4)
    with pytest.raises(CompileError, match="'keepdim' must be bool.*(?s:.*)write bool"):
        symshape.jit(COMPARISONS["keepdim"])(x)

    def program(x: Tensor) -> Tensor:
        return x.sum(1, keepdim=bool(x.shape[1] > 3))

    compiled = symshape.jit(program)
    for n in (5, 2, 7, 1):
        x = torch.randn(2, n, 4)
        torch.testing.assert_close(compiled(x), program(x))


def test_methods_of_objects_are_no_operators() -> None:
    """``torch.ops.aten`` has an ``__eq__`` that is no operator: PyTorch 2.11 calls that of tensors by this name."""
    from symshape.frontend.patches.python.number_arguments import _number_parameters

    assert _number_parameters("__eq__") == {}
    assert _number_parameters("sum")


def test_the_order_of_a_norm_is_a_guard_where_it_is_usual() -> None:
    """A power of each element takes 20 times as long as its square."""

    def norm(x: torch.Tensor, order: int) -> torch.Tensor:
        return x.norm(order, 1)

    compiled, x = symshape.compile(norm), torch.randn(5, 7)
    for order in (2, 1, 3, 4):
        torch.testing.assert_close(compiled(x, order), norm(x, order))
    (graph,) = symshape.explain(norm, x, 2).graphs
    (kernel,) = graph.kernels
    assert not any(instr.op == "math.powf" for instr in kernel.loops.code)
