"""Operators between conditions on sizes, bools, numbers: eager mode's results, one graph where nothing is decided."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import symshape

Tensor = torch.Tensor
# Dynamo of PyTorch 2.11 multiplies no list by a condition, and has no ``^=`` of one.
not_in_2_11 = pytest.mark.xfail(torch.__version__ < "2.12", raises=RuntimeError, reason="Dynamo of PyTorch 2.11")
SIZES = ((2, 5), (1, 4), (3, 3), (3, 4), (5, 1), (4, 2))


def of_conditions(x: Tensor) -> Any:
    tall, wide = x.shape[0] > 2, x.shape[1] > 3
    inverted = tall
    inverted ^= True
    found = (tall ^ True, False ^ tall, tall ^ wide, tall == True, tall != wide, (tall == wide) | inverted)  # noqa: E712
    return tuple(x * one for one in found)


def with_numbers(x: Tensor) -> Any:
    tall, wide, n = x.shape[0] > 2, x.shape[1] > 3, x.shape[1]
    bits = [tall ^ 1, tall & 3, 6 | tall, tall & n, n | tall, n ^ tall, tall << 1, 1 << wide, 5 >> tall, ~tall, ~n]
    sums = [-tall, abs(tall), tall / 2, 3 % (tall + 1), 2**tall, n**wide, tall == 1, tall != 0.5, tall == None]  # noqa: E711
    return tuple(x + number for number in (*bits, *sums, tall < wide))


def branch(x: Tensor) -> Tensor:
    return x * 2 if (x.shape[0] > 2) ^ (x.shape[1] == 4) else x + 1


def of_tensors_with_sizes(x: Tensor) -> Any:
    return torch.ones(1, dtype=torch.bool) ^ (x.shape[0] > 2), x * ((x.shape[0] > 2) == (x.shape[1] > 3))


def in_containers(x: Tensor) -> Any:
    tall, wide = x.shape[0] > 2, x.shape[1] > 3
    written = [1, 2]
    written[tall] = 5
    chosen = ([1, 2][tall], (3, 4)[wide], int("56"[tall]), {True: 7, False: 8}[wide], x.shape[tall], written[0])
    return tuple(x * one for one in chosen), x[tall], x[[tall, wide][1] :], torch.tensor([tall, True])


def as_numbers(x: Tensor) -> Any:
    tall, wide = x.shape[0] > 2, x.shape[1] > 3
    extremes = (max(tall, wide), min([tall, wide]), max(tall, wide, 2), min(tall, 0.5))
    counts = (len(range(tall)), len([1, 2] * wide), math.sqrt(tall), float(wide), round(tall))
    return tuple(x * one for one in (*extremes, *counts)), (x > 1) == max(tall, wide)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    f.__name__: f for f in (of_conditions, with_numbers, branch, of_tensors_with_sizes, in_containers, as_numbers)
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("compiler", [symshape.compile, symshape.jit], ids=["compile", "jit"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[not_in_2_11] * (n == "as_numbers")) for n in PROGRAMS])
def test_results(name: str, compiler: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = compiler(PROGRAMS[name])
    for rows, columns in SIZES:
        x = torch.arange(1.0, rows * columns + 1).reshape(rows, columns)
        torch.testing.assert_close(compiled(x), PROGRAMS[name](x), rtol=0, atol=0)


@not_in_2_11
def test_conditions_are_not_decided() -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(of_conditions, fullgraph=True)
    for shape in SIZES:
        x = torch.ones(shape)
        torch.testing.assert_close(compiled(x), of_conditions(x), rtol=0, atol=0)
    assert counters["stats"]["unique_graphs"] == 1


def test_values_of_tensors() -> None:
    torch._dynamo.reset()
    counters.clear()

    def program(x: Tensor, i: Tensor) -> Tensor:
        return x * (bool(i.item()) ^ True) + x * (bool(i.item()) == (x.shape[0] > 2))

    compiled = symshape.compile(program, fullgraph=True)
    for rows, value in ((3, 1), (2, 0), (5, 0), (1, 7)):
        x, i = torch.ones(rows, 2), torch.tensor(value)
        torch.testing.assert_close(compiled(x, i), program(x, i), rtol=0, atol=0)
    assert counters["stats"]["unique_graphs"] == 1


def test_identity_and_extremes_beside_sizes() -> None:
    torch._dynamo.reset()

    def program(x: Tensor) -> Tensor:
        tall = x.shape[0] > 2
        return x * ((tall is True) + 2 * (tall is not True)) + max(tall, x.shape[1]) + min(x.shape[0], tall)

    compiled = symshape.compile(program, fullgraph=True)
    for shape in SIZES:
        torch.testing.assert_close(compiled(torch.ones(shape)), program(torch.ones(shape)), rtol=0, atol=0)


def test_values_of_tensors_as_integers() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, i: Tensor) -> Tensor:
        large = i.item() > 1
        return x * [1, 2][large] + max(large, x.shape[0] > 2) * (3 if large is True else 4)

    compiled = symshape.compile(program)
    for rows, value in ((3, 1), (2, 2), (2, 0), (1, 7)):
        x, i = torch.ones(rows, 2), torch.tensor(value)
        torch.testing.assert_close(compiled(x, i), program(x, i), rtol=0, atol=0)
