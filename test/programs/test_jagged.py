"""Nested tensors with the jagged layout: eager mode's results for every batch of lengths, one graph for all."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from jagged import BATCHES, JAGGED, RULES, WIDTH, Jagged, attention, bags
from torch.utils import _pytree as pytree

import symshape

Tensor = torch.Tensor
# What else there is of the kind takes minutes.
SHORT = ("layer norm", "sum of the ragged dim", "causal attention", "joined along the ragged dim")
SHORT_JIT = ("sum of the ragged dim", "variance of the ragged dim", "offsets of lengths")


def programs(short: tuple[str, ...]) -> list[Any]:
    every = (*JAGGED, *RULES)
    return [pytest.param(p, id=p.name, marks=() if p.name in short else pytest.mark.long) for p in every]


def leaves(value: Any) -> list[Any]:
    """Tensors of a result; of nested ones values and offsets."""
    found = [(one.values(), one.offsets()) if one.is_nested else one for one in pytree.tree_leaves(value)]
    return list(pytree.tree_leaves(found))


def run(function: Any, inputs: tuple[Tensor, ...], gradient: bool) -> list[Any]:
    """Results, and gradients of all inputs that have one."""
    result = function(*inputs)
    found = leaves(result)
    if gradient:
        floats = [one for one in pytree.tree_leaves(result) if one.requires_grad]
        sum((one.values() if one.is_nested else one).double().square().sum() for one in floats).backward()
        found += leaves([x.grad for x in inputs if x.grad is not None])
    return found


@pytest.mark.parametrize("program", programs(SHORT))
def test_programs(program: Jagged) -> None:
    report = symshape.explain(program.function, *program.inputs(program.batches[0]), options={"strict": True})
    for lengths in program.batches:
        expected = run(program.reference or program.function, program.inputs(lengths), program.gradient)
        found = run(report.run, program.inputs(lengths), program.gradient)
        torch.testing.assert_close(found, expected, equal_nan=True, msg=lambda text, batch=lengths: f"{batch}: {text}")
    kinds = ["forward", "backward"] if program.gradient else ["inference"]
    assert [graph.kind for graph in report.graphs] == kinds
    calls = sorted(call.split(".")[1] for graph in report.graphs for call in graph.library_calls)
    assert calls == sorted(program.calls)


@pytest.mark.parametrize("program", programs(SHORT_JIT))
def test_programs_through_jit(program: Jagged) -> None:
    jitted = symshape.jit(program.function)
    for lengths in program.batches:
        expected = run(program.reference or program.function, program.inputs(lengths), program.gradient)
        found = run(jitted, program.inputs(lengths), program.gradient)
        torch.testing.assert_close(found, expected, equal_nan=True, msg=lambda text, batch=lengths: f"{batch}: {text}")
    assert len(jitted.entries) == 1
    calls = sorted(
        call.split(".")[1] for entry in jitted.entries for graph in entry.graphs for call in graph.library_calls
    )
    assert calls == sorted(program.calls)


@pytest.mark.long
def test_first_call_of_any_batch() -> None:
    """One graph, whichever batch came first: of one row, of equal rows, of none with an element."""

    def function(x: Tensor) -> Tensor:
        return x.softmax(-1) * 2

    for first in ((9,), (6, 6), (0, 0, 0), (1,), (0,)):
        report = symshape.explain(function, nested(first))
        for lengths in BATCHES:
            x = nested(lengths)
            torch.testing.assert_close(report.run(x).values(), function(x).values())
        assert len(report.graphs) == 1 and not report.further


def nested(lengths: tuple[int, ...], **options: Any) -> Tensor:
    return torch.nested.nested_tensor([torch.randn(n, WIDTH) for n in lengths], layout=torch.jagged, **options)


def test_with_a_base_and_without() -> None:
    """What ``nested_tensor`` makes is a view of its values, what an operator makes is none."""
    report = symshape.explain(torch.sin, nested((3, 5, 2)))
    for x in (nested((3, 5, 2)).clone(), nested((1, 0)), nested((4, 2)) * 2):
        torch.testing.assert_close(report.run(x).values(), x.values().sin())
    assert len(report.graphs) == 1 and not report.further


def test_views_are_views_of_their_values() -> None:
    """Writes reach the values, and gradients too."""

    def write(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    offsets = torch.tensor([0, 3, 8, 10])
    values, others = torch.arange(20.0).view(10, 2), torch.arange(20.0).view(10, 2)
    expected = write(torch.nested.nested_tensor_from_jagged(values, offsets))
    found = symshape.compile(write)(torch.nested.nested_tensor_from_jagged(others, offsets))
    assert torch.equal(values, others)
    torch.testing.assert_close(found.values(), expected.values())
    leaf = torch.randn(10, 2, requires_grad=True)
    found = symshape.compile(torch.sin)(torch.nested.nested_tensor_from_jagged(leaf, offsets))
    found.values().sum().backward()
    torch.testing.assert_close(leaf.grad, leaf.detach().cos())


def test_equal_sizes_of_different_offsets() -> None:
    """Eager mode refuses them, and so does what is compiled; equal offsets are taken, by the same function."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    compiled = symshape.compile(function)
    x = nested((3, 5, 2))
    same = torch.nested.nested_tensor_from_jagged(torch.randn(10, WIDTH), x.offsets())
    other = nested((5, 3, 2))
    for _ in range(2):
        torch.testing.assert_close(compiled(x, same).values(), x.values() * same.values())
        for program in (function, compiled):
            with pytest.raises(RuntimeError):
                program(x, other)


def test_a_mean_of_no_rows_is_nan() -> None:
    found = symshape.compile(lambda x: x.mean(1))(nested((0, 2)))
    assert math.isnan(found[0, 0]) and not math.isnan(found[1, 0])


def test_a_mean_of_halves_has_a_sum_that_is_none() -> None:
    """65504 is the largest number of the type."""
    x = torch.nested.nested_tensor_from_jagged(torch.full((5, WIDTH), 60000.0).half(), torch.tensor([0, 3, 5]))
    found = symshape.compile(lambda x: x.mean(1))(x)
    assert found.dtype == torch.float16 and found.equal(x.values()[:2])


BAD_OFFSETS = ((0, 5, 3, 10), (0, 3, 12), (-2, 4, 10), (4, 2, 0))


def test_bad_offsets() -> None:
    """Refused where they address memory, with nothing written; eager mode's pointwise operators do not look at them."""
    values = torch.randn(10, WIDTH)
    before = values.clone()

    def rows(offsets: tuple[int, ...], program: Any) -> Any:
        return program(torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets)))

    total, sine = symshape.compile(lambda x: x.sum(1)), symshape.compile(torch.sin)
    for offsets in BAD_OFFSETS:
        with pytest.raises(RuntimeError, match="offsets of rows decrease, are negative, or end past the values"):
            rows(offsets, total)
        assert torch.equal(values, before)
        torch.testing.assert_close(rows(offsets, sine).values(), values.sin())
    expected = torch.stack([values[2:2].sum(0), values[2:9].sum(0)])
    torch.testing.assert_close(rows((2, 2, 9), total), expected)


BY_ROWS: dict[str, Any] = {
    "softmax": lambda x: x.softmax(1),
    "variance": lambda x: x.var(1),
    "cumulative sum": lambda x: x.cumsum(1),
    "for each row": lambda x: x * torch.ones(x.size(0), 1, WIDTH),
    "joined": lambda x: torch.cat([x, x], 1),
    "bags": lambda x: bags(x, torch.ones(8, 3)),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.0),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("joined", "for each row") else pytest.mark.long) for name in BY_ROWS],
)
def test_bad_offsets_of_other_programs(name: str) -> None:
    """Where a program asks for rows, in any way."""
    values, compiled = torch.randn(10, WIDTH), symshape.compile(BY_ROWS[name])
    before = values.clone()
    for offsets in BAD_OFFSETS:
        with pytest.raises(RuntimeError, match="offsets of rows decrease, are negative, or end past the values"):
            compiled(torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets)))
        assert torch.equal(values, before)


def test_values_as_results_have_gradients() -> None:
    """Views of an input that are made by way of a nested tensor, and nested tensors with offsets of their own."""

    def view(values: Tensor, lengths: Tensor) -> Tensor:
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        return torch.nested.nested_tensor_from_jagged(values, offsets).unsqueeze(-1).values()

    def made(values: Tensor, lengths: Tensor) -> Tensor:
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        return torch.nested.nested_tensor_from_jagged(values.sin(), offsets) * values.sum()

    for program in (view, made):
        for compiled in (symshape.compile(program, fullgraph=True), symshape.jit(program)):
            for lengths in ((3, 7), (2, 0, 1), (0,)):
                x = torch.randn(sum(lengths), 4, dtype=torch.float64, requires_grad=True)
                found = []
                for function in (compiled, program):
                    result = leaves(function(x, torch.tensor(lengths)))
                    found.append((*result, *torch.autograd.grad(result[0].square().sum(), x)))
                torch.testing.assert_close(found[0], found[1])


@pytest.mark.long
def test_a_loop_over_rows() -> None:
    """Python that loops over rows has a graph for each number of rows, up to the policy's limit; then the frame is
    broken there. Said once."""

    def function(x: Tensor) -> Tensor:
        total = torch.zeros(WIDTH)
        for i, row in enumerate(x.unbind()):
            total = total + row.sum(0) * (i + 1)
        return total

    report = symshape.explain(function, nested((2, 3)))
    jitted = symshape.jit(function)
    for rows in (*range(1, 7), 3, 6):
        lengths = tuple(i % 4 for i in range(rows))
        inputs = [nested(lengths, requires_grad=True)]
        inputs += [inputs[0].detach().requires_grad_() for _ in range(2)]
        found = [(program(x), x) for program, x in zip((function, report.run, jitted), inputs)]
        for result, x in found:
            result.square().sum().backward()
            torch.testing.assert_close(result, found[0][0])
            torch.testing.assert_close(x.grad.values(), found[0][1].grad.values())
    graphs = [graph for graph in report.graphs if graph.kind != "backward"]
    assert 4 <= len(graphs) <= 6 and not any(graph.fallbacks for graph in report.graphs)
    assert len(jitted.entries) == 6


def test_bad_offsets_of_attention() -> None:
    """Refused before the first row; rows that only have queries are 0."""
    attend = symshape.compile(lambda q, k: F.scaled_dot_product_attention(q, k, k), fullgraph=True)

    def rows(values: Tensor, offsets: tuple[int, ...]) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets)).unflatten(-1, (2, -1))

    q, k = torch.randn(10, WIDTH), torch.randn(7, WIDTH)
    for of_queries, of_keys in zip(BAD_OFFSETS, ((0, 3, 4, 7), (0, 7, 7), (0, 2, 5), (0, 1, 5))):
        with pytest.raises(RuntimeError, match="offsets of rows decrease, are negative, or end past the values"):
            attend(rows(q, of_queries).transpose(1, 2), rows(k, of_keys).transpose(1, 2))
    found = attend(rows(q, (0, 4, 10)).transpose(1, 2), rows(k, (0, 0, 7)).transpose(1, 2)).transpose(1, 2).values()
    dense = [t.unflatten(-1, (2, -1)).transpose(0, 1) for t in (q[4:], k, k)]
    expected = F.scaled_dot_product_attention(*dense).transpose(0, 1)
    torch.testing.assert_close(found, torch.cat([torch.zeros(4, 2, WIDTH // 2), expected]))


def test_many_short_rows() -> None:
    """Rows of one length are one call of the kernel."""
    weights = [torch.rand(WIDTH, WIDTH, dtype=torch.float64) - 0.5 for _ in range(3)]
    lengths = tuple(torch.randint(0, 40, (60,), generator=torch.Generator().manual_seed(1)).tolist())
    found, given = [], nested(lengths)
    for function in (symshape.compile(attention, fullgraph=True), attention):
        x = given.detach().requires_grad_()
        result = function(x, *weights).values()
        found.append((result, *torch.autograd.grad(result.square().sum(), [x])))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1].values(), found[1][1].values())


def test_values_of_padded_rows() -> None:
    """Also of rows that are longer than what is padded, and of values that are in no row: they are 0. Bad offsets are
    found before anything is returned."""
    back = torch.ops.aten._padded_dense_to_jagged_forward
    report = symshape.explain(lambda rows, o, n: back(rows, [o], n.size(0)) * 2, *padded_rows((0, 2, 5), 5))
    assert [graph.library_calls for graph in report.graphs] == [[]]
    for offsets in ((0, 0, 0), (0,), (0, 3), (0, 0, 3, 3, 5), tuple(range(14))):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
            rows, o, n = padded_rows(offsets, offsets[-1])
            expected = back(rows, [o], offsets[-1]).to(dtype) if offsets[-1] else torch.empty(0, 4, dtype=dtype)
            torch.testing.assert_close(report.run(rows.to(dtype), o, n), expected * 2)
    rows, o, n = padded_rows((1, 2, 4), 6)
    expected = torch.stack([torch.zeros(4), rows[0, 0], *rows[1, :2], torch.zeros(4), torch.zeros(4)]) * 2
    torch.testing.assert_close(report.run(rows, o, n), expected)
    short = report.run(rows[:, :1], torch.tensor([0, 2, 4]), n)
    torch.testing.assert_close(short, torch.zeros(6, 4).index_copy(0, torch.tensor([0, 2]), rows[:, 0] * 2))
    torch.testing.assert_close(report.run(rows[:, :0], o, n), torch.zeros(6, 4))
    for offsets in BAD_OFFSETS:
        with pytest.raises(RuntimeError, match="offsets of rows decrease, are negative, or end past the values"):
            report.run(torch.randn(len(offsets) - 1, 3, 4), torch.tensor(offsets), torch.empty(10, 0))


def padded_rows(offsets: tuple[int, ...], count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows as long as the longest, their offsets, and a tensor of ``count`` values."""
    longest = max((b - a for a, b in zip(offsets, offsets[1:])), default=2)
    return torch.randn(len(offsets) - 1, longest, 4), torch.tensor(offsets), torch.empty(count, 0)


def test_padded_to_a_given_size() -> None:
    """Also where there are no values at all."""

    def function(x: Tensor) -> Tensor:
        return torch.nested.to_padded_tensor(x, 7.0, output_size=(x.size(0), 4, WIDTH)).exp()

    report, jitted = symshape.explain(function, nested((1, 2))), symshape.jit(function)
    for lengths in ((3, 4), (0, 2, 1), (0, 0), (4,)):
        x = nested(lengths)
        torch.testing.assert_close(report.run(x), function(x))
        torch.testing.assert_close(jitted(x), function(x))
    assert len(report.graphs) == len(jitted.entries) == 1
