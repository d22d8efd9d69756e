"""Truth of a number that is in the data: the graph is broken at the jump, as at one on a comparison."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import symshape
from symshape.tools.measure import Graphs

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
VALUES = ((3, 0), (2, 2), (1, 1), (0, 0), (4, 3))


def negated(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if not flag.item():
        y = y + 1
    return y * 2


def conjunction(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return x + 1 if flag.item() and x.shape[0] else x


def alternative(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return x * (flag.item() or 5)


def countdown(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    left = steps.item()
    while left:
        x, left = x * 1.5, left - 1
    return x


def of_float(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    total = (x.sum() * flag).item()
    return x / total if total else x


def of_difference(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return x + 1 if flag.item() - x.shape[0] else x


def in_a_loop(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    for k in range(3):
        if flag.item() - k:
            x = x + k
    return x


def in_a_handler(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    try:
        if not flag.item():
            raise ValueError
        return x + 1
    except ValueError:
        return x - 1


def in_a_called_function(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return negated(x * 2, flag) + 1


FUNCTIONS = (
    negated,
    conjunction,
    alternative,
    countdown,
    of_float,
    of_difference,
    in_a_loop,
    in_a_handler,
    in_a_called_function,
)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_a_jump_on_a_number(fn: Function) -> None:
    compiled = symshape.compile(fn)
    for n, value in VALUES:
        x, flag = torch.rand(n), torch.tensor(value)
        torch.testing.assert_close(compiled(x, flag), fn(x, flag))


class InitialisedOnce(nn.Module):
    """Does something at its first call, as variational models of GPyTorch do."""

    def __init__(self) -> None:
        super().__init__()
        self.initialised: torch.Tensor
        self.register_buffer("initialised", torch.tensor(0))
        self.weight = nn.Parameter(torch.ones(3))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self.initialised.item():
            with torch.no_grad():
                self.weight.copy_(x.mean(0))
            self.initialised.fill_(1)
        return super().__call__(x)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def test_a_module_that_is_initialised_at_its_first_call() -> None:
    modules = [nn.Sequential(InitialisedOnce(), nn.Tanh()) for _ in range(2)]

    def fn(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return module(x) + 1  # type: ignore[no-any-return]

    with Graphs() as graphs:
        compiled = symshape.compile(fn)
        for n in (2, 3, 1):
            x = torch.rand(n, 3)
            torch.testing.assert_close(compiled(modules[0], x), fn(modules[1], x))
        first = graphs.read().graphs
        for n in (5, 7):
            x = torch.rand(n, 3)
            torch.testing.assert_close(compiled(modules[0], x), fn(modules[1], x))
    assert graphs.read().graphs == first
