"""Items of tensors at an integer that is in the data: one graph, views where eager mode has views, writes in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape

Tensor = torch.Tensor


def row(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[i] = v
    return x.sum()


def column(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[:, i] = v[: x.shape[0]]
    return x * 2


def last_dim(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[..., i] = 0
    return x + v


def element(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[i, i] = v[0] * 2
    x[i, 1:] = v[1:]
    x[None, i, 0] = 3
    return x.exp()


def leading_ones(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[i] = v[None, None].double()
    return x * 1


def added_to(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[i] += v
    part = x[:, i]
    part.mul_(3)
    return x - 1


def with_tensors(x: Tensor, i: Tensor, v: Tensor) -> Any:
    x[i, torch.tensor([0, 1])] = v[:2]
    return x[torch.tensor([[0], [1]]), i], x[i, torch.tensor([True])[0]]


def numbers(x: Tensor, i: Tensor, v: Tensor) -> Any:
    n = i.item()
    x[:, n] = v[: x.shape[0]]
    x[n] = v
    return x[n, 1:], x[..., n] * 2, x[1:, n]


def read(x: Tensor, i: Tensor, v: Tensor) -> Any:
    return x[i] * 2, x[:, i] + 1, x[i, i], x[i][1:], x[None, i], x[1:, i], x[i, i.to(torch.int32)] + v


FUNCTIONS = [row, column, last_dim, element, leading_ones, added_to, with_tensors, numbers, read]


def one_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Any = symshape.compile(function, fullgraph=True, options={"strict": True})
    return compiled


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    return symshape.jit(function, options={"strict": True})


@pytest.mark.parametrize("compile", [one_graph, entry])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values(function: Callable[..., Any], compile: Callable[..., Any]) -> None:
    compiled = compile(function)
    torch._dynamo.utils.counters.clear()
    for size, i in ((6, 3), (9, 0), (2, 1), (7, -2), (5, 4)):
        x, v = torch.randn(size, size), torch.randn(size)
        ours, theirs = x.clone(), x.clone()
        found, wanted = compiled(ours, torch.tensor(i), v), function(theirs, torch.tensor(i), v)
        torch.testing.assert_close((found, ours), (wanted, theirs))
    stats = torch._dynamo.utils.counters["stats"]
    assert (len(compiled.entries) if compile is entry else stats["unique_graphs"]) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("compile", [one_graph, entry])
def test_gradients(compile: Callable[..., Any]) -> None:
    def function(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        y = x * 2
        y[:, i] = v
        y[i] *= 3
        return (y.sin() * y[i]).sum()

    compiled = compile(function)
    for size, i in ((4, 1), (7, -1), (3, 0)):
        given = torch.randn(size, size), torch.randn(size)
        found = []
        for run in (compiled, function):
            x, v = (t.clone().requires_grad_() for t in given)
            found.append(torch.autograd.grad(run(x, torch.tensor(i), v), [x, v]))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("function", [row, column, read])
def test_an_index_out_of_range_is_eagers_error(function: Callable[..., Any]) -> None:
    for compile in (one_graph, entry):
        compiled = compile(function)
        for i in (5, -6):
            with pytest.raises(IndexError):
                compiled(torch.randn(5, 5), torch.tensor(i), torch.randn(5))


def _step_by_tensor(keys: Tensor, values: Tensor, i: Tensor, x: Tensor) -> Tensor:
    keys[:, :, i], values[:, i] = x, x[:, 0] * 2
    return (keys * values[:, None]).sum(2)


def _step_by_number(keys: Tensor, values: Tensor, i: Tensor, x: Tensor) -> Tensor:
    n = i.item()
    keys[:, :, n], values[:, n] = x, x[:, 0] * 2
    return (keys * values[:, None]).sum(2)


def _step_by_list(keys: Tensor, values: Tensor, i: Tensor, x: Tensor) -> Tensor:
    keys[:, :, i.view(1)], values[:, i.view(1)] = x[:, :, None], x[:, :1] * 2
    return (keys * values[:, None]).sum(2)


@pytest.mark.parametrize("function", [_step_by_tensor, _step_by_number, _step_by_list])
def test_a_cache_is_written_in_its_memory(function: Callable[..., Any]) -> None:
    keys, values, x = torch.randn(2, 3, 16, 8), torch.randn(2, 16, 8), torch.randn(2, 3, 8)
    report = symshape.explain(function, keys.clone(), values.clone(), torch.tensor(3), x)
    (graph,) = report.graphs
    assert graph.statistics["write-inputs"]["left"] == 0
    assert not graph.library_calls
    assert "symshape.reuse" not in graph.stages["kernels"]  # nothing is copied to where it is
    compiled = one_graph(function)
    for i in range(16):
        ours, theirs = ([keys.clone(), values.clone()] for _ in range(2))
        torch.testing.assert_close(compiled(*ours, torch.tensor(i), x), function(*theirs, torch.tensor(i), x))
        torch.testing.assert_close(ours, theirs)
