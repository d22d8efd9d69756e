"""Tensors that a graph returns in one memory: objects of their own, and views to autograd where eager mode has them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import symshape
from symshape.tools.measure import Graphs

COMPILERS = {
    "compile": symshape.compile,
    "backend": functools.partial(torch.compile, backend="symshape", dynamic=True),
    "jit": symshape.jit,
}
each_compiler = pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
SIZES = (5, 2, 7)


def floats(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    v = x + 1
    return v, v, v.detach(), v.view(v.shape), v[1:], v[1:], v[1:].detach(), v.data, x * 2, v.t().t(), v[:1].split(1)[0]


def without_its_base(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    v = x * 2
    return v[1:].detach(), v[1:], v.flatten()[1:]


def views_of_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    v = x * 2
    return v, v[1:].view(torch.int32), v[1:]


def as_positions(tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[Any]]:
    """Which of them are one object, and which are views of one: the same numbers for the same program."""
    objects: dict[int, int] = {}
    bases: dict[int, int] = {}
    own = [objects.setdefault(id(one), len(objects)) for one in tensors]
    return own, [None if one._base is None else bases.setdefault(id(one._base), len(bases)) for one in tensors]


@each_compiler
@pytest.mark.parametrize("program", [floats, without_its_base, views_of_views])
def test_objects_and_bases(compiler: Any, program: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = compiler(program)
    for n in SIZES:
        x = torch.randn(n, 3)
        assert as_positions(compiled(x)) == as_positions(program(x))


@each_compiler
@pytest.mark.parametrize("compute", [torch.sort, torch.linalg.svd, torch.exp, functools.partial(torch.max, dim=0)])
def test_equal_calls_return_memory_of_their_own(compiler: Any, compute: Callable[..., Any]) -> None:
    """Also calls that have several results, of which one is returned."""
    torch._dynamo.reset()

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        one, other = ([found] if isinstance(found, torch.Tensor) else list(found) for found in (compute(x), compute(x)))
        return [one[0], other[0], one[-1]]

    compiled = compiler(program)
    for n in SIZES:
        x = torch.rand(4, n)
        first, second, _ = compiled(x)
        kept = second.clone()
        first.zero_()
        assert torch.equal(second, kept)
        torch.testing.assert_close(second, program(x)[1])


@each_compiler
def test_a_detached_tensor_is_not_its_base(compiler: Any) -> None:
    torch._dynamo.reset()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        v = x.exp()
        return v, v.detach()

    compiled = compiler(program)
    for n in SIZES:
        v, detached = compiled(torch.randn(n))
        detached.unsqueeze_(0)
        detached.requires_grad_()
        assert not v.requires_grad and v.shape == (n,) and v.data_ptr() == detached.data_ptr()


@each_compiler
def test_gradients_of_what_is_written_to_a_view(compiler: Any) -> None:
    torch._dynamo.reset()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        v = x + 1
        return v, v[1:], v[:, 1].detach()

    def gradient(function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
        w = torch.arange(3.0, requires_grad=True)
        v, view, detached = function(x)
        view.mul_(w)
        assert not detached.requires_grad
        v.pow(2).sum().backward()
        assert w.grad is not None
        return w.grad

    compiled = compiler(program)
    for n in SIZES:
        x = torch.randn(n, 3)
        torch.testing.assert_close(gradient(compiled, x), gradient(program, x))


def integers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    v = (x * 4).long() + 1
    rest = v[::2]
    torch._dynamo.graph_break()
    rest[1:].mul_(3)
    return v * 1, rest + 1, x * rest.sum()


def floats_in_two_graphs(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    v = x * 2
    rest, other = v[::2], v.flatten()[1:]
    torch._dynamo.graph_break()
    rest[1:].mul_(3)
    return v * 1, rest + 1, other - 1


@pytest.mark.parametrize("name", ["compile", "backend"])
@pytest.mark.parametrize(("program", "gradient"), [(integers, True), (integers, False), (floats_in_two_graphs, False)])
def test_the_next_graph_writes_to_one_of_them(name: str, program: Callable[..., Any], gradient: bool) -> None:
    torch._dynamo.reset()
    compiled = COMPILERS[name](program)
    for n in (5, 8, 3):
        x = torch.randn(n, 3, requires_grad=gradient)
        for ours, theirs in zip(compiled(x), program(x)):
            torch.testing.assert_close(ours, theirs)


MAYBE_VIEWS: dict[str, tuple[Callable[..., Any], int]] = {
    "contiguous": (lambda x: x.t().contiguous(), 2),
    "channels last": (lambda x: x.contiguous(memory_format=torch.channels_last), 4),
    "to channels last": (lambda x: x.to(memory_format=torch.channels_last), 4),
    "reshape": (lambda x: x.transpose(0, 1).reshape(x.shape[0], -1), 3),
    "flatten": (lambda x: x.transpose(1, 2).flatten(1), 3),
    "ravel": (lambda x: x.movedim(0, -1).ravel()[1:], 2),
    "a view of it": (lambda x: x.t().contiguous().view(-1, x.shape[0]), 2),
    "a part": (lambda x: x[:, :2].contiguous(), 2),
    "beside what was computed": (lambda x: (lambda y: (y, y.t().contiguous()))(x * 2), 2),
    "of another type": (lambda x: x.t().to(torch.float64), 2),
}


@pytest.mark.parametrize("name", MAYBE_VIEWS)
def test_what_is_a_view_where_a_size_is_1(name: str) -> None:
    """The caller writes to the argument, and to each result, after the call."""
    program, rank = MAYBE_VIEWS[name]
    compiled = symshape.compile(program)
    with Graphs() as graphs:
        for sizes in ((4, 3, 5, 6), (1, 3, 5, 6), (4, 1, 1, 1), (7, 2, 3, 2), (5, 4, 2, 3), (1, 1, 1, 1)):
            theirs = torch.arange(float(torch.Size(sizes[:rank]).numel())).view(sizes[:rank])
            ours = theirs.clone()
            expected, actual = (pytree.tree_leaves(f(x)) for f, x in ((program, theirs), (compiled, ours)))
            for written in range(-1, len(expected)):
                for x, results in ((theirs, expected), (ours, actual)):
                    (x if written < 0 else results[written]).add_(1)
                torch.testing.assert_close((ours, *actual), (theirs, *expected), rtol=0, atol=0)
    assert not graphs.breaks and graphs.graphs <= 5


def patches(x: torch.Tensor) -> torch.Tensor:
    batch, channels, height, width = x.shape
    cut = x.reshape(batch, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 3, 5, 1)
    return cut.reshape(batch, height // 2 * (width // 2), 4 * channels)


# The shape of an operand, and the number of graphs for 3, 1, 0 and 4 in the place of its 1.
RESHAPED: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    "repeated rows": (lambda x: x[:, None].expand(-1, 3, -1).reshape(-1, x.shape[-1]), (1, 2), 2),
    "columns": (lambda x: x.t().flatten(), (1, 4), 2),
    "heads": (lambda x: x.transpose(1, 2).flatten(0, 1), (2, 1, 4), 2),
    "patches of images": (patches, (1, 2, 4, 4), 1),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_nothing_is_copied_of_no_element(name: str) -> None:
    """Sizes of which none is 1 share a graph with 0, and all sizes do where no size makes it a view."""
    function, shape, needed = RESHAPED[name]
    torch._dynamo.reset()
    compiled = symshape.compile(function)
    with Graphs() as graphs:
        for n in (3, 1, 0, 4):
            found = []
            for one in (function, compiled):
                x = torch.arange(math.prod(sizes := [n if s == 1 else s for s in shape])).float().view(sizes)
                y = one(x)
                x += 1
                found.append((x, y))
            torch.testing.assert_close(*found)
    assert graphs.graphs == needed


def test_a_copy_of_what_nobody_has_is_one_graph() -> None:
    compiled = symshape.compile(lambda x: (x + 1).t().contiguous() + x.t().reshape(-1).sum())
    with Graphs() as graphs:
        for sizes in ((4, 3), (1, 3), (4, 1), (7, 2)):
            x = torch.randn(sizes)
            torch.testing.assert_close(compiled(x), (x + 1).t().contiguous() + x.sum())
    assert graphs.graphs == 1


def both(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.broadcast_tensors(x, y)


def the_second(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.functional.broadcast_tensors(y, x)[1]


def read_after_a_write(x: torch.Tensor, y: torch.Tensor) -> Any:
    spread, other = torch.broadcast_tensors(x, y)
    x.add_(1)
    return spread * other


def of_what_was_computed(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y[:1, :1]
    return z, torch.broadcast_tensors(z, y)[0]


@pytest.mark.parametrize("name", ["compile", "backend"])
@pytest.mark.parametrize("program", [both, the_second, read_after_a_write, of_what_was_computed])
def test_what_is_broadcast_is_a_view(name: str, program: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = COMPILERS[name](program)
    with Graphs() as graphs:
        for sizes in ((1, 1), (4, 3), (1, 3), (4, 1), (7, 3)):
            y = torch.randn([whole if size == 1 else size for size, whole in zip(sizes, (4, 3))])
            theirs = torch.randn(sizes)
            ours = theirs.clone()
            expected, actual = (pytree.tree_leaves(f(x, y)) for f, x in ((program, theirs), (compiled, ours)))
            assert [one.stride() for one in actual] == [one.stride() for one in expected]
            for x in (theirs, ours):
                x.mul_(2)
            torch.testing.assert_close((ours, *actual), (theirs, *expected), rtol=0, atol=0)
    assert not graphs.breaks and graphs.graphs <= 4
