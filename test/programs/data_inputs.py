"""The inputs of programs with data-dependent sizes: one of the tensors holds the number ``u``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

VALUES = (7, 0, 1, 2, 1000)


@dataclass(frozen=True)
class DataProgram:
    """``inputs(u)``: tensors, of which no dim is below 2. ``gradient``: floating ones require it."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    gradient: bool = False
    values: tuple[int, ...] = VALUES


def number(u: int) -> tuple[Any, ...]:
    return (torch.tensor(u),)


def rows(u: int) -> tuple[Any, ...]:
    """u, and a matrix that has that many rows and two more."""
    return torch.tensor(u), torch.randn(u + 2, 4)


def row(u: int) -> tuple[Any, ...]:
    return torch.tensor(u), torch.randn(4)


def five(u: int) -> tuple[Any, ...]:
    return torch.tensor(u), torch.randn(5)


def two(u: int) -> tuple[Any, ...]:
    """Two numbers, and as many rows as both together."""
    return torch.tensor([u, 3]), torch.randn(u + 3, 4)


def flagged(u: int) -> tuple[Any, ...]:
    """A mask of which u elements are true, and rows."""
    m = torch.zeros(u + 3, dtype=torch.bool)
    m[torch.randperm(u + 3)[:u]] = True
    return m, torch.randn(u + 3, 4)


def labels(u: int) -> tuple[Any, ...]:
    """Labels below max(u, 1), all of which occur, and a row for each."""
    seen = torch.arange(max(u, 1))
    drawn = torch.cat([seen, torch.randint(0, max(u, 1), (5,))])
    return drawn[torch.randperm(len(drawn))], torch.randn(len(drawn), 4)


def repeats(u: int) -> tuple[Any, ...]:
    """How often each of three rows comes: u times together."""
    return torch.tensor([u // 2, 0, u - u // 2]), torch.randn(3, 4)


def pair(u: int) -> tuple[Any, ...]:
    return torch.tensor([u, 1]), torch.tensor([1, u]), torch.randn(3, 2)
