"""What a program is, and tensors to run it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

SIZES = (7, 16, 2, 17, 64, 101, 1, 0)
LARGE = tuple(n for n in SIZES if n >= 2)
NONEMPTY = tuple(n for n in SIZES if n >= 1)
F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8, BOOL = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
FLOATS, INTEGERS = (F32, F64, F16, BF16), (I64, I32, I16, I8, U8)


class Beside(int):
    """The size 6, beside which a dim of some more elements (``n + k``) has another size."""

    size: int

    def __new__(cls, size: int) -> Beside:
        made = super().__new__(cls, 6)
        made.size = size
        return made

    def __add__(self, more: int) -> int:
        return self.size if more > 0 else int(self) + more

    def __repr__(self) -> str:
        return f"{int(self)} beside {self.size}"


def smallest(n: int) -> int:
    """The smallest size of the inputs of size n."""
    return min(n, n.size) if isinstance(n, Beside) else n


@dataclass(frozen=True)
class Program:
    """``inputs(n)`` makes the arguments of size n. ``gradient``: floating inputs require it. ``alone``: the framework
    compiles it anew for many sizes, and would do so for what is compiled together with it."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    sizes: tuple[int, ...] = SIZES
    gradient: bool = False
    alone: bool = False


def normal(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def positive(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return (torch.rand(shape) + 0.25).to(dtype)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = I64) -> torch.Tensor:
    return torch.randint(low, high, shape).to(dtype)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(shape) < 0.5


def vector(n: int) -> tuple[torch.Tensor, ...]:
    return (normal(n),)


def matrix(n: int) -> tuple[torch.Tensor, ...]:
    return (normal(n, n + 3),)


def cube(n: int) -> tuple[torch.Tensor, ...]:
    return (normal(n, n + 3, 5),)


def pair(n: int) -> tuple[torch.Tensor, ...]:
    return normal(n, n + 3), normal(n, n + 3)


def square(n: int) -> tuple[torch.Tensor, ...]:
    """All sizes equal, here and at the first call."""
    return normal(n, n), normal(n, n)


P = Program
