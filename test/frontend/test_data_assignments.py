"""``p.data = v``: the tensor gets its new memory at that line, and the code before and after it is compiled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import FallbackWarning
from symshape.tools.measure import Graphs

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def torch_compile(fn: Program) -> Program:
    compiled: Program = torch.compile(fn, backend="symshape", options={"strict": True})
    return compiled


def ours(fn: Program) -> Program:
    return symshape.compile(fn, options={"strict": True})


def with_fallbacks(fn: Program) -> Program:
    compiled: Program = torch.compile(fn, backend="symshape", options={"strict": False})
    return compiled


def ours_with_fallbacks(fn: Program) -> Program:
    return symshape.compile(fn, options={"strict": False})


both = pytest.mark.parametrize("compile_", [torch_compile, ours])


def _scaled(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    before = layer(x)
    layer.weight.data = layer.weight.data * 2
    return before + layer(x).relu()


def _step(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    for p in layer.parameters():
        p.data = p.data - 0.5 * p.data.sign()
    return x * 2


def _statistics(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    layer.weight.data = layer.weight.data + x.mean(0)
    layer.weight.data.mul_(3)
    layer.weight.data = layer.weight.data.clamp(min=-1)
    with torch.no_grad():
        scaled = layer(x)
        layer.bias.data = layer.bias.data.exp()
        scaled = scaled + layer(x)
    return scaled * layer(x)


def _memory_of_another(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    y = torch.ones(4, 3) * 2
    z = layer.weight.data
    layer.weight.data.add_(1)
    layer.weight.data = y
    y.mul_(5)  # the parameter shows it
    z.sub_(7)  # which is not its memory any more
    return layer(x) + z.sum()


def _returned(layer: torch.nn.Linear, x: torch.Tensor) -> Any:
    layer.bias.data = layer.bias.data + 1
    return layer.bias, x + layer.bias.data[:3]


@pytest.mark.sample(3)
@both
@pytest.mark.parametrize("program", [_scaled, _step, _statistics, _returned])
def test_one_frame_with_its_gradients(compile_: Callable[[Program], Program], program: Program) -> None:
    compiled = compile_(program)
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 4)
    with Graphs() as graphs:
        for rows in (5, 2, 7):
            theirs, mine, x = copy.deepcopy(layer), copy.deepcopy(layer), torch.randn(rows, 3)
            parameters, before = list(mine.parameters()), [p.data for p in mine.parameters()]
            expected, actual = program(theirs, x), compiled(mine, x)
            torch.testing.assert_close(actual, expected)
            for results in (expected, actual):
                results = results if isinstance(results, tuple) else (results,)
                if any(one.requires_grad for one in results):
                    sum(one.sin().sum() for one in results).backward()
            for p, q, same in zip(mine.parameters(), theirs.parameters(), parameters):
                assert p is same
                torch.testing.assert_close((p.data, p.grad), (q.data, q.grad))
            assert any(p.data_ptr() != old.data_ptr() for p, old in zip(mine.parameters(), before))
    assert not graphs.breaks


@pytest.mark.parametrize("compile_", [with_fallbacks, ours_with_fallbacks])
def test_memory_that_is_shown_twice(compile_: Callable[[Program], Program]) -> None:
    layer = torch.nn.Linear(3, 4)
    theirs, x = copy.deepcopy(layer), torch.randn(5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # AOTAutograd refuses such a part
        actual = compile_(_memory_of_another)(layer, x)
    torch.testing.assert_close(actual, _memory_of_another(theirs, x))
    torch.testing.assert_close(layer.weight, theirs.weight)


def test_the_calls_of_an_optimisers_step_are_one_graph() -> None:
    report = symshape.explain(_step, torch.nn.Linear(3, 4), torch.randn(2, 3))
    assert len(report.graphs) == 1


def _other_rows(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    x.data = doubled.data[:2]
    return x * 2


def _read_after(x: torch.Tensor) -> torch.Tensor:
    x.data = x.data[::2]
    return x.t().contiguous() * x.shape[0]


def _of_an_argument(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x.exp()
    x.data = y
    return z + x.sum()


def _set(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    x.set_(torch.cat([y, y]))
    return x + 1


@pytest.mark.parametrize("compile_", [with_fallbacks, ours])
@pytest.mark.parametrize("program", [_other_rows, _of_an_argument, _set])
def test_other_sizes(compile_: Callable[[Program], Program], program: Program) -> None:
    compiled = compile_(program)
    for first, second in ((6, 6), (3, 9), (1, 2), (8, 0)):
        given = [torch.randn(first, 3), torch.randn(second, 3)][: program.__code__.co_argcount]
        theirs = [x.clone() for x in given]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            actual = compiled(*given)
        torch.testing.assert_close(actual, program(*theirs))
        torch.testing.assert_close(given, theirs)


def test_the_graph_is_broken_where_sizes_change() -> None:
    with Graphs() as graphs:
        x, y = (torch.arange(18.0).view(6, 3) for _ in range(2))
        torch.testing.assert_close(ours(_read_after)(x), _read_after(y), rtol=0, atol=0)
        assert x.shape == y.shape == (3, 3)
    assert len(graphs.breaks) == 1
