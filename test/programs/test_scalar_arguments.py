"""Number arguments of operators that are sizes, or are computed of sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import symshape

from . import scalar_arguments as programs

TABLE = {**programs.ANY, **programs.FLOATING}
FEW = (
    "index_add",
    "scatter",
    "scatter_many",
    "scatter_add",
    "scatter_multiply",
    "clamp",
    "full",
    "leaky_relu",
    "masked_fill",
)
NUMBERS = {"int": lambda x: x.shape[0], "float": lambda x: x.shape[0] / 4}


def matrix(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(n * (n + 2)).reshape(n, n + 2).sub(2 * n).to(dtype)


def eager_results(names: Sequence[str], number, dtype: torch.dtype) -> list[str]:
    """Those programs that eager mode knows for this type."""
    x, found = matrix(5, dtype), []
    for name in names:
        try:
            TABLE[name](x, number(x))
            found.append(name)
        except (RuntimeError, TypeError):
            pass
    return found


def check(names: Sequence[str], number, dtype: torch.dtype) -> None:
    known = eager_results(names, number, dtype)
    assert len(known) >= len(names) / 2

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [TABLE[name](x, number(x)) for name in known]

    torch._dynamo.reset()
    compiled = symshape.compile(run, fullgraph=True)
    for n in (5, 7, 2):
        x = matrix(n, dtype)
        for name, ours, eager in zip(known, compiled(x), run(x)):
            torch.testing.assert_close(ours, eager, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_some(number, dtype) -> None:
    check([name for name in FEW if dtype.is_floating_point or name in programs.ANY], NUMBERS[number], dtype)


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
@pytest.mark.parametrize("part", range(8))
def test_all(number, dtype, part) -> None:
    names = [name for name in TABLE if dtype.is_floating_point or name in programs.ANY]
    check(names[part::8], NUMBERS[number], dtype)


def products(x: torch.Tensor, k: int) -> list[torch.Tensor]:
    n = x.shape[0] - k
    return [
        x.sum() * ((n * (n + 1)) / ((n - 1) * (n - 2) * (n - 3))),
        x[:3] / (n * n * n),
        x[:3].double() * ((n + 2) * n * n * n * n / (n * n * 7)),
        torch.full((2,), (n * n - n * 5) / (n * n * n * n), dtype=torch.float64),
    ]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_products_of_sizes_have_as_many_bits_as_they_need(target) -> None:
    """From n = 2,097,154 on the first divisor has more than 64 bits."""
    options = {"target": target}
    for compiled in (symshape.compile(products, options=options), symshape.jit(products, options=options)):
        for n, k in ((5, 0), (8, -2_100_000), (7, -2_400_000), (9, 2_000_001)):
            x = torch.arange(n, dtype=torch.float32)
            torch.testing.assert_close(compiled(x, k), products(x, k), rtol=0, atol=0)


def test_a_size_of_what_is_repeated_is_larger_than_memory() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x[:3].double() * ((x.shape[0] * 8192) / 7)

    compiled = symshape.compile(run)
    for n in (5, 7, 2**50, 2**53):
        x = torch.ones(1).expand(n)
        torch.testing.assert_close(compiled(x), run(x), rtol=0, atol=0)


@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit])
def test_products_of_sizes_of_what_is_repeated_are_real_numbers_beyond_64_bits(entry: Callable[..., Any]) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n, k = x.shape
        return y * (4 * n * k)

    compiled = entry(run)
    y = torch.randn(3)
    for n, k in ((3, 5), (2**40, 2**21), (0, 3)):
        x = torch.ones(1, 1).expand(n, k)
        torch.testing.assert_close(compiled(x, y), run(x, y), rtol=0, atol=0)


def test_an_integer_of_more_than_64_bits_is_an_error_as_in_eager_mode() -> None:
    compiled = symshape.compile(lambda x, k: x * (k * k))
    x = torch.arange(4)
    assert compiled(x, 3).tolist() == [0, 9, 18, 27]
    assert compiled(x, -(2**31)).tolist() == [0, 2**62, -(2**63), -(2**62)]
    with pytest.raises(OverflowError, match="more than 64 bits"):
        compiled(x, 2**33)


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_integers_of_more_than_32_bits(target) -> None:
    def run(x: torch.Tensor, k: int) -> list[torch.Tensor]:
        return [x.long() + k, x.double() * k, x.double() * (k / 7), x.long() + k * 3]

    compiled = symshape.compile(run, options={"target": target})
    x = torch.arange(5, dtype=torch.int32)
    for k in (5, 2**33, -7, -(2**31) - 5, -(2**40)):
        torch.testing.assert_close(compiled(x, k), run(x, k), rtol=0, atol=0)
