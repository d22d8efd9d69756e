"""``x.data.mul_(2)``: autograd does not notice a write to ``x.data``, so backward of what was computed before works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import symshape

Tensor = torch.Tensor


def _clipped(parameters: Sequence[Tensor], v: Tensor) -> None:
    for p in parameters:
        p.data.clamp_(-0.5, 0.5)


def _averaged(parameters: Sequence[Tensor], v: Tensor) -> None:
    for p in parameters:
        p.data.mul_(0.5).add_(v, alpha=0.5)


def _written_in_part(parameters: Sequence[Tensor], v: Tensor) -> Tensor:
    p = parameters[0]
    p.data[v.shape[0] - 1] = v.sum()
    return p


def _returned_twice(parameters: Sequence[Tensor], v: Tensor) -> Any:
    p = parameters[0]
    p.data.add_(v)
    return p, v * 2, p


PROGRAMS = (_clipped, _averaged, _written_in_part, _returned_twice)


def torch_compile(fn: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(fn, backend="symshape", options={"strict": True})
    return compiled


def ours(fn: Callable[..., Any]) -> Callable[..., Any]:
    return symshape.compile(fn, options={"strict": True})


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("compile_", [torch_compile, ours])
def test_backward_after_a_write(compile_: Callable[..., Any], program: Callable[..., Any]) -> None:
    compiled = compile_(program)
    for n in (3, 5, 1):
        v = torch.randn(n)
        expected, found = _run(program, v), _run(compiled, v)
        for e, f in zip(expected, found, strict=True):
            torch.testing.assert_close(f, e, rtol=0, atol=0)
    torch._dynamo.reset()


def _run(change: Callable[..., Any], v: Tensor) -> list[Any]:
    """The gradient of what read a leaf and an intermediate value before both were changed, and what they are then."""
    torch.manual_seed(0)
    leaf = torch.randn(v.shape).requires_grad_()
    middle = leaf * 2
    loss = (leaf.exp() * middle).sum()
    result = change([leaf, middle], v)
    loss.backward()
    assert leaf._version == middle._version == 0
    others = result if isinstance(result, tuple) else (result,)
    same = [one is leaf for one in others]
    return [
        leaf.detach(),
        leaf.grad,
        middle.detach(),
        *same,
        *(one for one in others if one is not leaf and one is not None),
    ]


def _other_memory(x: Tensor, y: Tensor) -> Tensor:
    x.data.mul_(2)
    return y * 3


def test_another_input_shares_the_memory() -> None:
    for first in (True, False):  # whether it does at the first call, or later
        compiled = symshape.compile(_other_memory)
        for shared in (first, not first):
            results = []
            for run in (_other_memory, compiled):
                x = torch.arange(4.0)
                y = x[1:].view(3) if shared else torch.ones(3)
                results.append((run(x, y), x))
            torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
        torch._dynamo.reset()


class _Assign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scratch: Tensor, value: Tensor, i: int) -> Tensor:  # type: ignore[override]
        ctx.i = i
        scratch.data[..., i] = value
        return scratch

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad, grad[..., ctx.i], None


def test_columns_that_a_custom_function_assigns_in_a_loop_that_is_not_traced() -> None:
    """A solver of differential equations (dopri5 of torchdiffeq) has each of its stages in one scratch tensor."""

    def step(y: Tensor) -> Tensor:
        k = _Assign.apply(torch.empty(*y.shape, 3), y, 0)
        for i in range(2):
            if k[..., i].sum() > 1e9:  # breaks the graph inside of the loop
                return y
            k = _Assign.apply(k, (k[..., : i + 1] * 0.5).sum(-1).tanh(), i + 1)
        return k.sum(-1)

    compiled = symshape.compile(step)
    for n in (4, 1):
        results = []
        for run in (step, compiled):
            torch.manual_seed(0)
            y = torch.randn(n, requires_grad=True)
            out = run(y)
            out.square().sum().backward()
            results.append((out, y.grad))
        torch.testing.assert_close(results[1], results[0])
    torch._dynamo.reset()
