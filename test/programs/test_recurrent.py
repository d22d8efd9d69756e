"""Recurrent layers are one library call each: one graph for all lengths and batches, with eager's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import symshape
from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.report import GraphReport

LAYERS = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)


def compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def call(module: torch.nn.Module, *args: Any) -> Any:
    return module(*args)


def outcome(function: Callable[..., Any], module: torch.nn.Module, *args: Any) -> list[torch.Tensor]:
    """Results, then the gradients of the first argument and of the parameters."""
    torch.manual_seed(5)
    results = [t for t in pytree.tree_leaves(function(module, *args)) if t.is_floating_point()]
    weights = [torch.randn_like(t) for t in results]
    first = pytree.tree_leaves(args[0])[0]
    return [*results, *torch.autograd.grad(results, [first, *module.parameters()], weights)]


def compare(function: Callable[..., Any], module: torch.nn.Module, *args: Any) -> None:
    actual, expected = outcome(function, module, *args), outcome(call, module, *args)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("form", ["plain", "dropout", "both"])
def test_one_graph_for_all_lengths(layer: Any, form: str) -> None:
    """The same numbers after `torch.manual_seed`, also in backward, which has the numbers that forward drew."""
    options = {"plain": {}, "dropout": {"dropout": 0.5}, "both": {"bidirectional": True, "batch_first": True}}[form]
    module = layer(3, 4, num_layers=2, **options)
    function, reports = compiled(call)
    for shape in ((5, 2, 3), (8, 7, 3), (2, 33, 3), (31, 2, 3)):
        compare(function, module, torch.randn(shape, requires_grad=True))
    assert [report.kind for report in reports] == ["forward", "backward"]
    name = "symshape.opaque_random_call" if form == "dropout" else "symshape.opaque_call"
    assert [report.library_calls for report in reports] == [[f"{name}_kept.default"], [f"{name}_gradient.default"]]
    assert "one call for every length and batch: aten." in str(reports[0])
    for shape in ((1, 1, 3), (4, 1, 3), (1, 4, 3), (9, 3)):
        compare(function, module, torch.randn(shape, requires_grad=True))


def test_layers_without_elements_and_without_gradients() -> None:
    module = torch.nn.LSTM(3, 4, proj_size=2)
    function = symshape.compile(call, fullgraph=True)
    x = torch.randn(3, 0, 3)
    assert [t.shape for t in pytree.tree_leaves(function(module, x))] == [(3, 0, 2), (1, 0, 2), (1, 0, 4)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for n in (4, 6):
                x = torch.randn(n, 2, 3)
                torch.testing.assert_close(function(module, x), module(x))
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        function(module, torch.randn(0, 2, 3))


@pytest.mark.parametrize("layer", LAYERS)
def test_under_autocast(layer: Any) -> None:
    """Each layer has element types of its own there; a processor for which oneDNN has no such layer refuses both."""
    module = layer(3, 4, bidirectional=True)
    function, _ = compiled(call)
    for shape in ((5, 2, 3), (9, 4, 3)):
        x = torch.randn(shape)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            try:
                expected = module(x)
            except RuntimeError as error:
                assert "primitive descriptor" in str(error)
                with pytest.raises(RuntimeError, match="primitive descriptor"):
                    function(module, x)
                return
            actual = function(module, x)
        for ours, theirs in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("layer", LAYERS)
def test_packed_sequences(layer: Any) -> None:
    """Batches of each step are an argument: they may be others at each call."""

    def run(module: torch.nn.Module, data: torch.Tensor, batches: torch.Tensor) -> Any:
        result, state = module(PackedSequence(data, batches))
        return result.data * 2, state

    module = layer(3, 4, num_layers=2, dropout=0.25)
    function, reports = compiled(run)
    for lengths in ((4, 2, 2), (6, 5, 3, 1), (3, 3), (9, 2)):
        batches = torch.tensor([sum(length > step for length in lengths) for step in range(max(lengths))])
        data = torch.randn(sum(lengths), 3, requires_grad=True)
        actual, expected = outcome(function, module, data, batches), outcome(run, module, data, batches)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert [report.kind for report in reports] == ["forward", "backward"]


LENGTHS = ([6, 2, 4], [3, 1], [7], [5, 5, 5, 1], [2, 9, 4])


def over_padded(module: torch.nn.RNNBase, x: torch.Tensor, lengths: torch.Tensor, ordered: bool) -> Any:
    first = module.batch_first
    packed, state = module(pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=ordered))
    return *pad_packed_sequence(packed, batch_first=first, padding_value=0.5), state


@pytest.mark.sample(2)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("batch_first", "ordered"), [(False, True), (True, False)])
def test_padded_rows_are_packed_and_padded_in_one_graph(layer: Any, batch_first: bool, ordered: bool) -> None:
    module = layer(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
    function, reports = compiled(over_padded)
    for lengths in LENGTHS:
        lengths = sorted(lengths, reverse=True) if ordered else lengths
        shape = (len(lengths), max(lengths)) if batch_first else (max(lengths), len(lengths))
        x, given = torch.randn(*shape, 3, requires_grad=True), torch.tensor(lengths)
        actual, expected = (outcome(one, module, x, given, ordered) for one in (function, over_padded))
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(function(module, x, given, ordered)[1], given)
    assert [report.kind for report in reports] == ["forward", "backward"]


def test_jit_of_packed_rows() -> None:
    module = torch.nn.LSTM(3, 4, batch_first=True)
    jitted = symshape.jit(lambda x, lengths: over_padded(module, x, lengths, False)[:2])
    for lengths in LENGTHS:
        x = torch.randn(len(lengths), max(lengths) + 2, 3, requires_grad=True)
        found = []
        for one in (jitted, lambda x, lengths: over_padded(module, x, lengths, False)[:2]):
            rows, counts = one(x, torch.tensor(lengths))
            found.append((rows, counts, *torch.autograd.grad(rows.square().sum(), [x, *module.parameters()])))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    assert len(jitted.entries) == 1


def test_lengths_as_integers_and_what_packing_refuses() -> None:
    """Integers in a list are symbols, and an error of the data is eager mode's."""

    def twice(x: torch.Tensor, lengths: Any) -> torch.Tensor:
        return pad_packed_sequence(pack_padded_sequence(x, lengths))[0] * 2

    function = symshape.compile(twice, fullgraph=True)
    for lengths in ([4, 3], [9, 2], [5, 5]):
        x = torch.randn(lengths[0], 2, 3)
        torch.testing.assert_close(function(x, lengths), twice(x, lengths))
    assert len(torch._dynamo.eval_frame._debug_get_cache_entry_list(twice.__code__)) == 1
    for lengths in ([3, 4], [4, 0]):
        for one in (function, twice):
            with pytest.raises(RuntimeError, match="sorted in decreasing order|greater than 0"):
                one(torch.randn(4, 2, 3), lengths)


def test_gradients_of_gradients_of_packed_rows() -> None:
    def norm(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        rows = pad_packed_sequence(pack_padded_sequence(x, lengths, enforce_sorted=False))[0]
        return (rows.sin() * rows).sum()

    function = symshape.jit(norm)
    for lengths in LENGTHS:
        x = torch.randn(max(lengths), len(lengths), 2, requires_grad=True, dtype=torch.float64)
        found = [torch.autograd.grad(one(x, torch.tensor(lengths)), x)[0] for one in (function, norm)]
        torch.testing.assert_close(*found)


def test_two_calls_draw_twice() -> None:
    """Equal calls that draw random numbers are not one."""

    def twice(module: torch.nn.Module, x: torch.Tensor) -> Any:
        return module(x)[0] - module(x)[0]

    module = torch.nn.GRU(3, 4, num_layers=2, dropout=0.5)
    function, _ = compiled(twice)
    for n in (5, 8):
        x = torch.randn(n, 2, 3, requires_grad=True)
        actual, expected = outcome(function, module, x), outcome(twice, module, x)
        assert actual[0].abs().max() > 0.01
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_gradient_of_a_call_that_draws() -> None:
    """``svd_lowrank`` of a size that is in the data: its gradient is that of the numbers drawn."""

    def values(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return torch.svd_lowrank(x[m], q=3, niter=1)[1]

    function, reports = compiled(values)
    for n in (9, 12):
        m = torch.arange(n) % 3 != 0
        found = []
        for one in (function, values):
            # Of full rank, singular values far apart: equal ones, or more than the rank, have no defined gradient.
            x = (torch.arange(n * 4.0) ** 2 / 7).sin().reshape(n, 4).requires_grad_()
            torch.manual_seed(3)
            found.append((one(x, m), *torch.autograd.grad(one(x, m).sum(), x)))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    assert "symshape.opaque_random_call_kept.default" in reports[0].library_calls


def test_torch_compile_keeps_layers_whole() -> None:
    """With the setting of Dynamo that allows them."""
    module = torch.nn.GRU(3, 4)
    with torch._dynamo.config.patch(allow_rnn=True):
        function = torch.compile(call, backend="symshape", dynamic=True, fullgraph=True)
        for n in (5, 7):
            compare(function, module, torch.randn(n, 2, 3, requires_grad=True))
