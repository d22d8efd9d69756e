"""Tensors that are written in place keep their memory and their strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import CompileError, FallbackWarning
from symshape.tools.measure import Graphs

Compile = Callable[..., Any]
both = pytest.mark.parametrize("compile_", [symshape.compile, symshape.jit])


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def numbers(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).view(sizes)


def compare(fn: Callable[..., Any], compiled: Callable[..., Any], part: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The function of a part of two equal memories: the results are equal, and the memories afterwards."""
    memories = numbers(24), numbers(24)
    expected, actual = fn(part(memories[0])), compiled(part(memories[1]))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    torch.testing.assert_close(memories[1], memories[0], rtol=0, atol=0)


def every_way(x: torch.Tensor) -> torch.Tensor:
    """Functional forms of these return a contiguous tensor, whatever the operand is."""
    rows = torch.tensor([1, 0])
    x.masked_fill_(x > 7, 0.5)
    flat = x.t().view(-1) * 2  # a copy is no view
    x.scatter_(0, torch.zeros_like(x[:1], dtype=torch.int64), 3.0)
    flat += x.t().view(-1)
    x.cumsum_(0)
    flat += x.t().view(-1)
    x.index_add_(0, rows, torch.ones_like(x[:2])).index_copy_(0, rows, numbers(2, 1).expand(2, x.size(1)))
    flat += x.t().view(-1)
    flat += x.t().view(-1)
    x.addmm_(torch.ones(x.size(0), 2), torch.ones(2, x.size(1)))
    return flat + x.t().view(-1)


@both
def test_the_order_of_dims_stays(compile_: Compile) -> None:
    compiled = compile_(every_way)
    with Graphs() as graphs:
        for rows in (3, 4):
            compare(every_way, compiled, lambda m, rows=rows: m.view(rows, -1).t())
    assert graphs.graphs == (1 if compile_ is symshape.compile else 0) and not graphs.breaks


def multiplied(x: torch.Tensor) -> Any:
    x.mul_(2)
    return x.as_strided((4,), (1,), 2) + 0, torch.as_strided_copy(x, (2,), (3,), 0)


def filled(x: torch.Tensor) -> Any:
    x.fill_(3.0)
    return x.as_strided((6,), (1,), 2) * 2


def written_by_a_view(x: torch.Tensor) -> Any:
    x.view(2, -1).mul_(3.0)
    x[1:3].add_(1.0)
    return x.as_strided((6,), (1,), 2) * 2


def seen_before(x: torch.Tensor) -> Any:
    view = x.as_strided((6,), (1,), 2)
    before = view + 0
    torch._foreach_add_([x, x], 1.0)
    return before, view * 2


def scattered(x: torch.Tensor) -> Any:
    x.mul_(2)
    return torch.as_strided_scatter(x, torch.zeros(2), (2,), (1,), x.storage_offset()).as_strided((5,), (1,), 2) * 1


def made_inside(x: torch.Tensor) -> Any:
    y = x * torch.ones(3, 1)
    y[1].neg_()
    return y.as_strided((4,), (1,), 2) * 1, y[1].as_strided((3,), (1,), 1) * 1, y


@pytest.mark.parametrize("fn", [multiplied, filled, written_by_a_view, seen_before, scattered, made_inside])
@both
def test_what_is_read_by_address_is_what_was_there(compile_: Compile, fn: Callable[..., Any]) -> None:
    compiled = compile_(fn)
    compare(fn, compiled, lambda m: m[4:8])
    compare(fn, compiled, lambda m: m[6:16])
    compare(fn, compiled, lambda m: m[:8])
    compare(fn, compiled, lambda m: m[::2])


def test_as_strided_of_all_of_a_memory_is_written_to() -> None:
    def diagonal(x: torch.Tensor) -> Any:
        y = torch.zeros(x.shape[0], x.shape[0] + 1)
        y.as_strided((x.shape[0],), (x.shape[0] + 2,)).copy_(x)
        x.as_strided((x.shape[0] // 2,), (2,)).mul_(3.0)
        return y, x * 2

    compiled = symshape.compile(diagonal, fullgraph=True, options={"strict": True})
    compare(diagonal, compiled, torch.clone)
    compare(diagonal, compiled, lambda m: m[:10] + 1)


def outside(x: torch.Tensor) -> torch.Tensor:
    x.as_strided((4,), (1,), 0)[1:].mul_(3.0)
    return x * 2


def test_what_is_written_outside_of_an_argument_is_left_to_eager_mode() -> None:
    with pytest.warns(FallbackWarning, match="may write outside of the part"):
        compare(outside, symshape.compile(outside, options={"strict": False}), lambda m: m[4:8])
    with pytest.raises(CompileError, match="may write outside of the part"):
        symshape.jit(outside)(numbers(12)[4:8])


class ReadsAround(torch.autograd.Function):
    """What is saved is a part of a copy of the memory that ``x`` is in."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.select_scatter(x, y, 0, 1)
        ctx.save_for_backward(z)
        return z * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (z,) = ctx.saved_tensors
        return grad * z.as_strided((4,), (1,), 0), (grad * z[1:].as_strided((4,), (1,), 1)).sum()


@both
def test_backward_reads_around_a_scatter(compile_: Compile) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return ReadsAround.apply(x, y)  # type: ignore[no-untyped-call]

    gradients = []
    for run in (fn, compile_(fn)):
        x, y = numbers(12)[4:8].detach().requires_grad_(), torch.tensor(3.0, requires_grad=True)
        run(x, y).sum().backward()
        gradients.append((x.grad, y.grad))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)
