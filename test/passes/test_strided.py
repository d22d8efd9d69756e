"""``as_strided`` and its scatter against eager mode, of contiguous tensors and of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import symshape

Tensor = torch.Tensor


def run(x: Tensor, y: Tensor) -> list[Tensor]:
    """Of an argument with gaps, of a view of one, of a transposed intermediate; and ``x`` changes while it is read."""
    a = x.as_strided((2, 3), (1, 2), 1)
    b = torch.as_strided_copy(y.t(), (3,), (2,), 0)
    c = (y * 2).t().as_strided((2, 2), (2, 1)) + a[:, :2]
    d = torch.as_strided_scatter(x, c, (2, 2), (4, 2), 1)
    e = torch.as_strided_scatter(y.t().exp(), c[0, 0], (), (), 1)
    f = torch.as_strided_scatter(y, c, (2, 2), (3, 1), 2)
    before = a * 2
    x.add_(1)
    return [before, b, c, d, e, f, x.as_strided((2,), (3,), 0)]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_storage(target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton")
    torch._dynamo.reset()
    compiled = symshape.compile(run, fullgraph=True, target=target, cache=False)
    for n in (4, 7):
        y = torch.randn(n, 5)
        storage = torch.randn(40)
        mine, eagers = (one[: 4 * n].view(n, 4)[:, ::2] for one in (storage, storage.clone()))
        expected, actual = run(eagers, y), compiled(mine, y)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(mine, eagers)
        assert [one.stride() for one in actual] == [one.stride() for one in expected]
    if target == "cpu":
        (graph,) = symshape.explain(run, mine, y).graphs
        assert graph.library_calls == ["aten.as_strided_scatter.default"]  # a copy of all of the memory of x


def test_elements_that_share_memory_cannot_be_written() -> None:
    """Eager's error, of the operator itself: which of several values stays is not defined."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.as_strided_scatter(x, y, (y.shape[0], 2), (0, 1))

    compiled = torch.compile(program, backend="symshape", dynamic=True)
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="more than one element"):
            function(torch.randn(4, 3), torch.randn(5, 2))


def part(memory: Tensor, offset: int, *sizes: int) -> Tensor:
    """A tensor in the middle of a memory, and no view."""
    return torch.empty(0).set_(memory.untyped_storage(), offset, sizes)


def parts(x: Tensor, y: Tensor) -> list[Tensor]:
    """Written to where the strides say in a memory, not in the part of it that the operand is."""
    n = y.shape[0]
    a = torch.as_strided_scatter(x, y, (n,), (1,), x.shape[1])  # begins where the first row does
    b = torch.as_strided_scatter(x[1:] * 2, y, (n,), (2,), 0)
    c = torch.as_strided_scatter(x[1:], y, (n,), (2,))
    d = torch.as_strided_scatter(x[2:], y, (n,), (1,), x.shape[1])  # before the operand: nothing of it changes
    e = torch.as_strided_scatter(c, y * 2, (n,), (2,), 2)
    return [a, b, c, d, e, e.as_strided((n,), (1,), 2), c.as_strided((x.shape[1],), (1,), 0)]


@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit])
def test_parts_of_a_memory(entry: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = entry(parts)
    for n in (3, 5, 1, 8):
        x, y = torch.randn(2 * n + 3, 2), torch.randn(n)
        actual, expected = compiled(x, y), parts(x, y)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert [one.stride() for one in actual] == [one.stride() for one in expected]


def scattered(x: Tensor, y: Tensor) -> list[Tensor]:
    """Written into a copy of a memory, which is then read before the part that was written to, in gaps and behind."""
    n = y.shape[0]
    flat = x.reshape(-1)
    a = torch.slice_scatter(flat[1:], y, 0, 0, 2 * n, 2)
    b = torch.select_scatter(x[:, 1:], y, 1, 0)
    c = torch.diagonal_scatter(x[1:3], y[:2])
    d = torch.select_scatter(torch.slice_scatter(x.t()[1:], y[None], 0, 0, 1), y * 2, 0, 1)
    e = torch.as_strided_scatter(flat[:n], y, (n,), (1,))
    part = x[1:]
    part[0, 1:] = 7
    own = (x * 2)[1:]
    own[:, 1] = 3
    made = [one.as_strided((3 * n,), (1,), 0) * 2 for one in (a, b, c, d, e, part, own)]
    return [*made, *(one.as_strided((2,), (1,)) + 1 for one in (a, b, c, d, e, part, own)), a, b, c, d, e]


@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit])
def test_what_is_around_a_written_part(entry: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = entry(scattered)
    for n in (3, 7, 5, 4):
        mine, eagers = torch.randn(n, 3), torch.randn(n)
        expected = scattered(mine.clone(), eagers)
        actual = compiled(mine, eagers)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert [one.stride() for one in actual] == [one.stride() for one in expected]


def test_a_written_part_that_is_read_inside_is_no_library_call() -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 2
        x[1:3] = 0
        return x.as_strided((x.shape[0] - 2, 3), (1, 1)) + torch.slice_scatter(x, x[:2], 0, 2, 4)[:-2, None]

    torch._dynamo.reset()
    (graph,) = symshape.explain(program, torch.randn(9)).graphs
    assert not graph.library_calls
    torch.testing.assert_close(symshape.compile(program)(torch.arange(9.0)), program(torch.arange(9.0)))


@pytest.mark.parametrize("more", [(), (3,)], ids=["rows of one", "rows of three"])
def test_inputs_in_the_middle_of_a_memory(more: tuple[int, ...]) -> None:
    """Of two inputs of one memory one is the base of the other, and begins where it does."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("symshape")

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y.reshape(-1)[:2].zero_()
        return x.clone(), y * 2

    compiled = torch.compile(program, backend=counter, dynamic=True)
    for n in (2, 5, 4, 9):
        mine, eagers = torch.arange(100.0), torch.arange(100.0)
        x, y = part(mine, n, n, *more), part(eagers, n, n, *more)
        actual, expected = compiled(x, x.view_as(x)), program(y, y.view_as(y))
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert torch.equal(mine, eagers) and not torch.equal(mine, torch.arange(100.0))
    assert counter.frame_count == 1
