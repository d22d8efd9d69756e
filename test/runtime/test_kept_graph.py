"""Graphs of opaque calls that live from forward to backward: forward runs once, and nothing outlives its use."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import symshape
from symshape.runtime import opaque_call
from symshape.runtime.kept_graph import KeptGraph, graph_of, ticket_for

Function = Callable[[torch.Tensor], torch.Tensor]


class Watch:
    """How often an opaque call was run, and which graphs are alive."""

    def __init__(self) -> None:
        self.runs = 0
        self.graphs: weakref.WeakSet[KeptGraph] = weakref.WeakSet()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    gc.freeze()  # what other tests have left: to walk it took nearly all of these tests' time
    found, run, make = Watch(), opaque_call.run, KeptGraph.__init__

    def counted(*args: Any) -> Any:
        found.runs += 1
        return run(*args)

    def noted(self: KeptGraph, *args: Any) -> None:
        make(self, *args)
        found.graphs.add(self)

    monkeypatch.setattr(opaque_call, "run", counted)
    monkeypatch.setattr(KeptGraph, "__init__", noted)
    yield found
    gc.collect()
    assert not found.graphs


def layer(dropout: float = 0.0) -> tuple[Function, Function, list[torch.nn.Parameter]]:
    """A function of a recurrent layer, the compiled one, and the layer's parameters."""
    module = torch.nn.LSTM(3, 4, num_layers=2, dropout=dropout)

    def function(x: torch.Tensor) -> torch.Tensor:
        return module(x.sin())[0] * 2

    return function, symshape.compile(function, fullgraph=True), list(module.parameters())


def leaf(n: int = 5) -> torch.Tensor:
    return torch.randn(n, 2, 3, requires_grad=True)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_forward_runs_once_for_several_backwards(watch: Watch, dropout: float) -> None:
    function, compiled, parameters = layer(dropout)
    for n in (5, 8, 1):
        x = leaf(n)
        results = []
        for one in (function, compiled):
            torch.manual_seed(3)
            watch.runs = 0
            y = one(x)
            grads = [torch.autograd.grad(y.square().sum(), [x, *parameters], retain_graph=i < 2) for i in range(3)]
            torch.testing.assert_close(grads[0], grads[2])
            results.append((y.detach(), grads[0]))
        assert watch.runs == 1
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_backward_that_never_comes_and_that_has_been(watch: Watch) -> None:
    _, compiled, _ = layer()
    x = leaf()
    y = compiled(x)
    assert len(watch.graphs) == 1
    del y
    assert not watch.graphs
    y = compiled(x)
    y.sum().backward()
    assert not watch.graphs  # while the result is alive
    with torch.no_grad():
        compiled(x)
    assert not watch.graphs


def test_several_forwards_before_the_first_backward(watch: Watch) -> None:
    function, compiled, parameters = layer()
    inputs = [leaf(n) for n in (4, 7, 4)]
    results = [compiled(x) for x in inputs]
    assert len(watch.graphs) == 3
    for x, y in reversed(list(zip(inputs, results))):
        actual, expected = (torch.autograd.grad(one.sum(), [x, *parameters]) for one in (y, function(x)))
        torch.testing.assert_close(actual, expected)
    assert watch.runs == 3


def test_what_is_written_to_in_between_is_an_error_as_in_eager_mode() -> None:
    function, compiled, parameters = layer()
    for one in (function, compiled):
        y = one(leaf())
        with torch.no_grad():
            parameters[1].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_result_that_is_written_to() -> None:
    """The layer's own result is saved by its graph: writing to what the program made of it changes no gradient."""
    function, compiled, parameters = layer()
    x = leaf()
    found = []
    for one in (function, compiled):
        y = one(x)
        y.mul_(3)
        found.append(torch.autograd.grad(y.sum(), [x, *parameters]))
    torch.testing.assert_close(*found)


def test_copies_of_tickets_compute_again(watch: Watch) -> None:
    function, compiled, parameters = layer()
    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, lambda kept: kept):
        y = compiled(x)
    actual, expected = (torch.autograd.grad(one.sum(), [x, *parameters]) for one in (y, function(x)))
    torch.testing.assert_close(actual, expected)
    assert watch.runs == 2
    leaves = [torch.ones(2, requires_grad=True)]
    ticket = ticket_for(KeptGraph([leaves[0].sin()], leaves))
    assert graph_of(ticket) is not None
    assert graph_of(copy.deepcopy(ticket)) is None and graph_of(pickle.loads(pickle.dumps(ticket))) is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_in_a_checkpoint_around_compiled_code(watch: Watch, reentrant: bool) -> None:
    function, compiled, parameters = layer()
    x = leaf()
    y = checkpoint(compiled, x, use_reentrant=reentrant)
    assert not watch.graphs
    y.sum().backward()
    expected = torch.autograd.grad(function(x).sum(), [x, *parameters])
    torch.testing.assert_close([one.grad for one in (x, *parameters)], list(expected))
    assert watch.runs == 2  # of which the checkpoint makes one


def test_batches_of_tangents() -> None:
    function, compiled, _ = layer()
    x = leaf()
    y = compiled(x)
    weights = torch.randn(3, *y.shape)
    (actual,) = torch.autograd.grad(y, x, weights, is_grads_batched=True)
    expected = torch.stack([torch.autograd.grad(function(x), x, weight)[0] for weight in weights])
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_threads_have_graphs_of_their_own(watch: Watch) -> None:
    function, compiled, parameters = layer()
    compiled(leaf()).sum().backward()
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for _ in range(10):
                x = leaf(n)
                torch.testing.assert_close(*(torch.autograd.grad(f(x).sum(), x) for f in (compiled, function)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
