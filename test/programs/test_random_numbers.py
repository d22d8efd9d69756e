"""Numbers of eager mode under a seed: what is drawn, the generator afterwards, results and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from random_numbers import PROGRAMS, Program

import symshape


@dataclass
class Outcome:
    """``states``: of the generator after forward and after backward."""

    results: list[Any]
    gradient: torch.Tensor | None
    states: list[torch.Tensor]


def outcome(function: Callable[..., Any], program: Program, n: int) -> Outcome:
    made = torch.Generator().manual_seed(n)
    x = program.layout(torch.randn(n, *program.shape, generator=made, dtype=torch.float64).to(program.dtype))
    x = x.detach().requires_grad_()
    torch.manual_seed(3)
    results = pytree.tree_leaves(function(x))
    states = [torch.get_rng_state()]
    differentiable = [one for one in results if one.requires_grad]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.ones_like(one) for one in differentiable])
    return Outcome(results, x.grad, [*states, torch.get_rng_state()])


def compare(function: Callable[..., Any], program: Program, n: int) -> None:
    expected = outcome(program.call, program, n)
    actual = outcome(function, program, n)
    for ours, theirs in zip(actual.results, expected.results, strict=True):
        assert ours.stride() == theirs.stride()
        if program.exact:
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
        else:
            torch.testing.assert_close(ours, theirs)
            assert torch.equal(ours == 0, theirs == 0)
    assert (actual.gradient is None) == (expected.gradient is None)
    if expected.gradient is not None:
        torch.testing.assert_close(actual.gradient, expected.gradient)
    assert all(map(torch.equal, actual.states, expected.states)), "the generator is in another state"


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_eager_mode(name: str) -> None:
    program = PROGRAMS[name]
    function = symshape.compile(program.call)
    for n in program.sizes:
        compare(function, program, n)
