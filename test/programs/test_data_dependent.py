"""Programs with data-dependent sizes: compiled once, with eager mode's results and errors for every value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from data_dependent import DATA_DEPENDENT, asserted
from data_inputs import DataProgram

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.report import GraphReport

PROGRAMS = {program.name: program for program in DATA_DEPENDENT}


def compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def outcome(function: Callable[..., Any], program: DataProgram, u: int) -> Any:
    """Results and gradients; or the type of the error."""
    torch.manual_seed(u)
    inputs = [
        x.requires_grad_(program.gradient and x.is_floating_point()) if isinstance(x, torch.Tensor) else x
        for x in program.inputs(u)
    ]
    try:
        result = function(*inputs)
    except (RuntimeError, IndexError, ValueError) as error:
        return next(kind for kind in (IndexError, ValueError, RuntimeError) if isinstance(error, kind)).__name__
    found = [result]
    if program.gradient:
        outputs = [t for t in pytree.tree_leaves(result) if t.requires_grad]
        torch.manual_seed(1)
        leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        found.append(torch.autograd.grad(outputs, leaves, [torch.randn(t.shape) for t in outputs]))
    return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, found)


def close(ours: torch.Tensor, theirs: torch.Tensor, label: str) -> None:
    """Up to the order in which sums are taken."""
    options = {}
    if theirs.is_floating_point():
        finite = theirs[theirs.isfinite()].abs()
        options = {"rtol": 1e-5, "atol": 1e-5 * max(1.0, finite.max().item() if len(finite) else 0.0)}
    torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda m: f"{label}: {m}", **options)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str) -> None:
    program = PROGRAMS[name]
    function, reports = compiled(program.function)
    for u in program.values:
        expected, actual = (outcome(f, program, u) for f in (program.function, function))
        leaves = [pytree.tree_leaves(tree) for tree in (actual, expected)]
        assert len(leaves[0]) == len(leaves[1]), f"u = {u}: {actual} instead of {expected}"
        for ours, theirs in zip(*leaves):
            if isinstance(theirs, torch.Tensor):
                assert isinstance(ours, torch.Tensor), f"u = {u}: {ours} instead of {theirs}"
                close(ours, theirs, f"u = {u}")
            else:
                assert ours == theirs and type(ours) is type(theirs), f"u = {u}: {ours} instead of {theirs}"
    assert len(reports) == 1 + program.gradient, [str(report) for report in reports]


def same_size(k: torch.Tensor, x: torch.Tensor) -> Any:
    """What is asserted of a size in the data stands for it in the trace: it is checked nevertheless."""
    u, v, w = torch.unique(k), x[x[:, 0] > 0], k.max().item() + 1
    for n in (u.shape[0], v.shape[0], w):
        torch._check(n == x.shape[0])
    return u + x[:, 0], v @ x.t(), torch.ones(w)


def of_split(k: torch.Tensor, x: torch.Tensor) -> Any:
    a, b = torch.split(x * 2, [k.item(), 4])
    return a.sin(), b.sum(0)


def test_asserted_sizes_are_checked() -> None:
    whole, _ = compiled(same_size)
    parts, reports = compiled(of_split)
    for rows in (7, 9):
        k, x = torch.arange(rows), torch.rand(rows, 3) + 1
        torch.testing.assert_close(whole(k, x), same_size(k, x))
        torch.testing.assert_close(parts(torch.tensor(rows - 4), x), of_split(torch.tensor(rows - 4), x))
        for bad in ((k[1:], x), (k + 1, x), (k, x - (k == 1)[:, None] * 2)):
            with pytest.raises(RuntimeError, match=__file__):
                whole(*bad)
        for count in (rows, rows - 5, -1):
            with pytest.raises(RuntimeError):
                parts(torch.tensor(count), x)
    assert len(reports) == 1


def test_asserted_booleans_are_checked() -> None:
    function, reports = compiled(asserted)
    for n in (5, 9):
        torch.testing.assert_close(function(torch.arange(1.0, n)), asserted(torch.arange(1.0, n)))
        for bad in (torch.arange(0.0, n), torch.arange(1.0, n) + 0.5):
            with pytest.raises((RuntimeError, AssertionError)):
                function(bad)
    assert len(reports) == 1


def integrated_and_multiplied(k: torch.Tensor, x: torch.Tensor) -> Any:
    """The second size of x is not in the data, but no constant; nor has the call a size as an argument."""
    rows = x[k > 0]
    return torch.trapezoid(rows, dim=0), torch.kron(rows, rows) * 2


def test_calls_as_one_operator_at_other_sizes() -> None:
    function, reports = compiled(integrated_and_multiplied)
    for columns in (4, 6, 3):
        k, x = torch.arange(7) - columns, torch.randn(7, columns, requires_grad=True)
        found, expected = function(k, x), integrated_and_multiplied(k, x)
        torch.testing.assert_close(found, expected)
        ours, theirs = (torch.autograd.grad(sum(y.sin().sum() for y in ys), x) for ys in (found, expected))
        torch.testing.assert_close(ours, theirs)
    assert len(reports) == 2
    text = str(reports[0])
    assert re.search(rf"are in the data: (trapezoid|kron) at {re.escape(__file__)}:", text)
    assert "torch/_functorch" not in text


def shifted_view(k: torch.Tensor, x: torch.Tensor) -> Any:
    """Parts of a tensor of unknown length are views of it: what is added to one shows in it."""
    rows = x[k > 0] * 1
    first, _, last = rows.tensor_split(3)
    first.add_(1)
    return rows, last


def test_calls_that_change_memory_are_no_operators() -> None:
    function = compile_with(shifted_view)
    for rows in (7, 9):
        k, x = torch.arange(rows) - 2, torch.randn(rows, 4, requires_grad=True)
        found, expected = function(k, x), shifted_view(k, x)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(sum(y.sin().sum() for y in ys), x) for ys in (found, expected)]
        torch.testing.assert_close(*gradients)


def pairs(k: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    rows = x[k > 0]
    return torch.nn.functional.bilinear(rows, rows, w), torch.cdist(rows, rows)


def test_calls_as_one_operator_under_autocast() -> None:
    function, reports = compiled(pairs)
    for rows in (7, 9):
        k, x, w = torch.arange(rows) - 2, torch.randn(rows, 4, requires_grad=True), torch.ones(2, 4, 4)
        with torch.autocast("cpu", torch.bfloat16):
            ours, theirs = function(k, x, w), pairs(k, x, w)
        torch.testing.assert_close(ours, theirs)
        gradients = [torch.autograd.grad(sum(y.float().sum() for y in ys), x) for ys in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-2)
    assert len(reports) == 2 and "symshape.opaque_call_kept.default" in reports[0].library_calls


def read_twice(k: torch.Tensor) -> Any:
    """Equal reads are one number, unless what is read was written to."""
    first, again = k[0].item(), k[0].item()
    torch._check(first >= 0)
    same = torch.ones(first) + torch.arange(again)
    k[0] += 2
    after = k[0].item()
    torch._check(after >= 0)
    return same, torch.ones(after).sum()


def test_an_integer_that_is_read_twice() -> None:
    function, reports = compiled(read_twice)
    for u in (4, 9, 0, 1):
        k = torch.tensor([u, 7])
        for ours, theirs in zip(function(k.clone()), read_twice(k.clone())):
            torch.testing.assert_close(ours, theirs)
    assert len(reports) == 1


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss(reduction: str) -> None:
    """Of any length, batch and number of classes; what is known of its result is its size."""

    def function(x: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss(x.log_softmax(-1), targets, lengths, wanted, reduction=reduction, zero_infinity=True) * 2

    ours, reports = compiled(function)
    for length, batch, classes in ((9, 3, 5), (14, 4, 6), (31, 2, 9)):
        targets = torch.randint(1, classes, (batch, 4))
        lengths, wanted = torch.randint(1, length + 1, (batch,)), torch.randint(1, 5, (batch,))
        found = []
        x = torch.randn(length, batch, classes)
        for one in (ours, function):
            leaf = x.clone().requires_grad_()
            result = one(leaf, targets, lengths, wanted)
            found.append((result, *torch.autograd.grad(result.sum(), leaf)))
        torch.testing.assert_close(*found)
    assert len(reports) == 2 and "one call: the lengths are in the data: aten.ctc_loss.Tensor" in str(reports[0])
    alone = torch.randn(6, 4), torch.tensor([1, 3]), torch.tensor(5), torch.tensor(2)
    torch.testing.assert_close(ours(*alone), function(*alone))


def test_masks_of_transformers() -> None:
    """Nobody looks whether they are causal."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    function, reports = compiled(lambda x, mask: module(x, mask=mask))
    for length in (5, 9):
        causal = torch.nn.Transformer.generate_square_subsequent_mask(length)
        for mask in (causal, torch.zeros(length, length), causal.flip(0)):
            x = torch.randn(3, length, 8)
            torch.testing.assert_close(function(x, mask), module(x, mask=mask), rtol=1e-4, atol=1e-5)
    assert len(reports) == 2
