"""Tensors that a graph returns in one memory: objects of their own, and views to autograd where eager mode has them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import symshape

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
