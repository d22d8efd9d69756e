"""Functions of math on sizes: one graph for all sizes, the numbers of eager mode, and its errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

import symshape
from symshape.frontend.decompositions.number_functions import FUNCTIONS

Tensor = torch.Tensor
SIZES = (9, 6, 1, 2, 23)


def of_every_number(x: Tensor) -> tuple[Tensor, ...]:
    """Each function of the table that takes one number, at one that all of them take."""
    n = x.shape[0] + 1
    found = [function for function in FUNCTIONS if function not in _LEFT_OUT]
    return tuple(x * function(1 / n if function is math.atanh else n) for function in found)


_LEFT_OUT = {getattr(math, name) for name in "atan2 comb copysign factorial fmod ldexp perm pow remainder".split()}


def of_two_numbers(x: Tensor) -> tuple[Tensor, ...]:
    n, half = x.shape[0], x.shape[0] / 2
    calls = [math.atan2(n, half), math.copysign(n, -1.0), math.fmod(7.5, n), math.pow(half, 0.3), math.pow(0.5, n)]
    calls += [math.log(n, 2), math.log(7, n + 1), math.hypot(n, 3, half), math.remainder(n, 3), math.ldexp(0.5, n)]
    calls += [math.comb(n, 2), math.gcd(n, 4), math.lcm(n, 6, 4), math.perm(n, 1), *divmod(n, 4), *divmod(7.5, half)]
    return tuple(x * number for number in calls)


def of_methods(x: Tensor) -> tuple[Any, ...]:
    whole = (x.shape[0] / 2).is_integer()
    return x * x.shape[0].bit_length(), x * whole, whole


def extrema(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    numbers = (max(n / 4, 1.0), max(n, 1.0), min(n / 2, 1.0), max(math.sqrt(n) / 2, 1), max(1.0, math.log(n)))
    return tuple(x * number for number in numbers) + (x.expand(max(n, 1), 4), x * math.factorial(min(n, 4)))


def in_sizes(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    power = 1 << (n - 1).bit_length()
    padded = F.pad(x, (0, 0, 0, 2 ** math.ceil(math.log(n, 2)) - n))
    return (
        F.pad(x, (0, 0, 0, power - n)).sum(0),
        padded * 2,
        x.new_zeros(int(math.log(n)) + 1),
        x[: math.isqrt(n)] + x[: math.ceil(n / 2)][: math.isqrt(n)],
        x.new_ones(math.gcd(n, 6), operator.index(n)),
        x.reshape(-1, 2 * math.gcd(n, 2)),
    )


def attention_scaled_by_the_length(x: Tensor) -> Tensor:
    q = x[None] * max(math.log(x.shape[0]) / math.log(4), 1.0)
    return F.scaled_dot_product_attention(q, x[None], x[None])


def entropy_of_its_most(x: Tensor) -> Tensor:
    p = x.softmax(0)
    return -(p * p.log()).sum() / math.log(x.shape[0] + 1)


PROGRAMS = {
    f.__name__: f
    for f in (
        of_every_number,
        of_two_numbers,
        of_methods,
        extrema,
        in_sizes,
        attention_scaled_by_the_length,
        entropy_of_its_most,
    )
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", [1, 9])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str, first: int) -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(PROGRAMS[name], fullgraph=True)
    for n in (first, *SIZES):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), PROGRAMS[name](x), rtol=1e-6, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1


def test_results_are_exact() -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(lambda x: [x * f(x.shape[0]) for f in (math.log, math.log10, math.exp2)])
    for n in range(2, 40):
        x = torch.ones((n, 1), dtype=torch.float64)
        for ours, function in zip(compiled(x), (math.log, math.log10, math.exp2)):
            assert ours[0].item() == function(n)
    assert counters["stats"]["unique_graphs"] == 1


def test_gradients() -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(attention_scaled_by_the_length)
    for n in SIZES:
        xs = [torch.arange(n * 4.0).reshape(n, 4).cos().requires_grad_() for _ in range(2)]
        for function, x in zip((compiled, attention_scaled_by_the_length), xs):
            function(x).square().sum().backward()
        torch.testing.assert_close(xs[0].grad, xs[1].grad)
    assert counters["stats"]["unique_graphs"] == 1


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "log": lambda x: x.sum() + math.log(x.shape[0]),
    "log of a quotient": lambda x: x.sum() + math.log10(x.shape[0] / 2),
    "acosh": lambda x: x.sum() + math.acosh(x.shape[0]),
    "atanh": lambda x: x.sum() + math.atanh(x.shape[0] / 4),
    "fmod": lambda x: x.sum() + math.fmod(7, x.shape[0]),
    "isqrt": lambda x: x.sum() + math.isqrt(x.shape[0] - 1),
    "exp": lambda x: x.sum() + math.exp(x.shape[0] * 200.0),
    "gamma": lambda x: x.sum() + math.gamma(x.shape[0]),
    "divmod": lambda x: x.sum() + divmod(7, x.shape[0])[0],
    "unused quotient": lambda x: (x.sum(), math.log(x.shape[0] / 2))[0],
    "unused": lambda x: (x.sum(), math.log(x.shape[0]))[0],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("order", [(3, 0, 1, 4), (0, 2, 1), (1, 5, 0)], ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_errors(name: str, order: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    function, compiled = REFUSED[name], symshape.compile(REFUSED[name])
    for n in order:
        x = torch.ones(n, 4)
        try:
            wanted = function(x)
        except (ValueError, ArithmeticError):
            with pytest.raises(Exception):  # noqa: B017 - Dynamo gives eager mode's error another type
                compiled(x)
            continue
        torch.testing.assert_close(compiled(x), wanted)


def test_numbers_from_the_data() -> None:
    torch._dynamo.reset()
    counters.clear()

    def program(x: Tensor, n: Tensor) -> Tensor:
        return x * math.log(n.item()) + x / math.log10(x.nonzero().shape[0])

    compiled = symshape.compile(program, fullgraph=True)
    for rows, n in ((3, 5), (7, 2), (4, 9)):
        x = torch.ones(rows, 2)
        torch.testing.assert_close(compiled(x, torch.tensor(n)), program(x, torch.tensor(n)))
    assert counters["stats"]["unique_graphs"] == 1


def test_rounded_numbers() -> None:
    """To tens, of sizes and of numbers from the data; as a size, too."""
    torch._dynamo.reset()
    counters.clear()

    def program(x: Tensor) -> tuple[Tensor, ...]:
        n, item = x.shape[0], (x[0] * 2.6).item()
        made = torch.arange(round(item)), x.new_zeros(round(n * 3, -1)), torch.arange(round(int(item * 9), -1))
        return *made, x * round(n, 1), x * round(n * 1.7, -1), x * round(item, 1), x * (item % 2), x * (-item % 1.5)

    compiled = symshape.compile(program, fullgraph=True)
    for n in (9, 6, 1, 23):
        x = torch.linspace(1, 3, n) + n / 8
        torch.testing.assert_close(compiled(x), program(x))
    assert counters["stats"]["unique_graphs"] == 1
    jitted = symshape.jit(lambda x: x * round(x.shape[0], -1))
    for n in (9, 6, 1, 23):
        torch.testing.assert_close(jitted(torch.ones(n)), torch.full((n,), float(round(n, -1))))


def test_powers_by_the_builtin() -> None:
    torch._dynamo.reset()
    counters.clear()

    def program(x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        return pow(x, 2), pow(2.0, x), pow(x, x), x * pow(n, 2), x * pow(2, n), x * pow(n, 0.5), x * pow(7, 2, 5)

    compiled = symshape.compile(program, fullgraph=True)
    for n in (4, 6, 1):
        x = torch.linspace(0.5, 2, n)
        torch.testing.assert_close(compiled(x), program(x))
    assert counters["stats"]["unique_graphs"] == 1


def test_numbers_of_numpy_keep_their_methods() -> None:
    torch._dynamo.reset()

    def program(x: Tensor) -> tuple[Tensor, ...]:
        half, root = np.ceil(x.shape[0] / 2), np.sqrt(x.shape[0])
        return x * half, x.new_zeros(half.astype(int)), x / root.round(2), x.view(np.prod(x.shape).item())

    compiled = symshape.compile(program)
    for n in (9, 4, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), program(x))
