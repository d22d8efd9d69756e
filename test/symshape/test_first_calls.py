"""Threads that make a first call together wait for one compile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import symshape
from symshape.frontend.bridge.frame_callback import is_argument_of_compile
from symshape.jitted import jitted_function

_THREADS = 8


@pytest.fixture
def graphs() -> Iterator[Callable[[], int]]:
    """How many graphs Dynamo has traced in this test."""
    torch._dynamo.reset()
    before = counters["stats"]["unique_graphs"]
    yield lambda: counters["stats"]["unique_graphs"] - before
    torch._dynamo.reset()


def together(work: Callable[[int], Any], count: int = _THREADS) -> list[Any]:
    """What each of the threads returns or raises, that begin at one moment."""
    start, found = threading.Barrier(count), [None] * count

    def run(number: int) -> None:
        start.wait()
        try:
            found[number] = work(number)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            found[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class _Layers(torch.nn.Module):
    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.first, self.second, self.breaks = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        if self.breaks:
            torch._dynamo.graph_break()
        return torch.softmax(self.second(y), -1).square().sum(0)


def _compare(compiled: Any, model: Any, number: int) -> None:
    x = torch.randn(2 + number, 8, requires_grad=True)
    result, expected = compiled(x), model(x)
    torch.testing.assert_close(result, expected)
    (gradient,), (wanted,) = torch.autograd.grad(result.sum(), x), torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_module_is_compiled_once(graphs: Callable[[], int], breaks: bool) -> None:
    model = _Layers(breaks)
    compiled = symshape.compile(model)
    assert together(lambda number: _compare(compiled, model, number)) == [None] * _THREADS
    assert graphs() == 1 + breaks


def test_in_one_graph(graphs: Callable[[], int]) -> None:
    model = _Layers(False)
    compiled = symshape.compile(model, fullgraph=True)
    assert together(lambda number: _compare(compiled, model, number)) == [None] * _THREADS
    assert graphs() == 1


@pytest.mark.skipif(not is_argument_of_compile("recompile_limit"), reason="PyTorch has no such argument")
def test_what_was_shared_does_not_count_for_the_limit(graphs: Callable[[], int]) -> None:
    compiled = symshape.compile(lambda x: x.sin() * x.shape[0], recompile_limit=3)
    together(lambda number: compiled(torch.ones(2 + number)), 3 * _THREADS)
    for dtype in (torch.float64, torch.float16):
        x = torch.ones(5, dtype=dtype)
        torch.testing.assert_close(compiled(x), x.sin() * 5)
    assert graphs() == 3


def test_each_thread_has_its_own_graph_where_guards_differ(graphs: Callable[[], int]) -> None:
    dtypes = [torch.float32, torch.float64]
    compiled = symshape.compile(lambda x: torch.cumsum(x, 0) + 1)

    def work(number: int) -> None:
        x = torch.randn(number, dtype=dtypes[number % 2])
        torch.testing.assert_close(compiled(x), torch.cumsum(x, 0) + 1)

    assert together(work) == [None] * _THREADS
    assert graphs() == 2


def test_a_compile_that_fails_is_each_threads_own(graphs: Callable[[], int]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    compiled = symshape.compile(fn, fullgraph=True)
    found = together(lambda number: compiled(torch.ones(number + 1)))
    assert all(isinstance(error, torch._dynamo.exc.Unsupported) for error in found)
    assert len({id(error) for error in found}) == _THREADS
    x = torch.ones(3)
    torch.testing.assert_close(symshape.compile(lambda x: x + 1)(x), x + 1)


def test_a_function_that_calls_compiled_ones(graphs: Callable[[], int]) -> None:
    """Of both kinds, the inner ones before and after the outer one."""
    inner, jitted = symshape.compile(lambda x: x.exp() + 1), symshape.jit(lambda x: x.tanh() * 2)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = inner(x)
        torch._dynamo.graph_break()
        return y * jitted(x)

    outer = symshape.compile(fn)
    calls = [outer, fn, inner, jitted]

    def work(number: int) -> None:
        x = torch.randn(3 + number)
        expected = [(x.exp() + 1) * x.tanh() * 2] * 2 + [x.exp() + 1, x.tanh() * 2]
        for k in range(4):
            torch.testing.assert_close(calls[(number + k) % 4](x), expected[(number + k) % 4])

    assert together(work) == [None] * _THREADS


def test_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry, and one state of the modules, however long it takes to look at them."""

    class Slow(jitted_function.ModuleState):
        def __init__(self, fn: Any) -> None:
            time.sleep(0.02)
            super().__init__(fn)

    monkeypatch.setattr(jitted_function, "ModuleState", Slow)
    model = _Layers(False)
    jitted = symshape.jit(model)
    assert together(lambda number: _compare(jitted, model, number)) == [None] * _THREADS
    assert len(jitted.entries) == 1
