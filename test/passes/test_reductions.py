"""Reductions against eager where types or shapes are unusual: integers, bools, operands that are broadcast."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import symshape

TARGETS = ["cpu", "triton"]
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64]
SIZES = [(5, 7), (3, 100), (300, 2)]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def _check(fn: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], inputs: list[torch.Tensor], target: str) -> None:
    compiled = symshape.compile(fn, target=target)
    for x in inputs:
        for result, expected in zip(compiled(x), fn(x), strict=True):
            assert result.dtype == expected.dtype
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_numbers(dtype: torch.dtype, target: str) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        extrema = (x.amax(1), x.amin(0), x.max(), x.min(), *x.max(1), *x.min(0))
        return *extrema, x.any(1), x.all(0), x.sum(1), x.sum()

    generator = torch.Generator().manual_seed(0)
    low, high = (0, 2) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    inputs = [torch.randint(low, high, size, generator=generator).to(dtype) for size in SIZES]
    _check(fn, inputs, target)


@pytest.mark.parametrize("target", TARGETS)
def test_operands_that_are_the_same_all_over_a_row(target: str) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.unsqueeze(0).expand(7, *x.shape)
        spread = x.sum(1, keepdim=True).expand_as(x)
        return rows.sum(0), rows.amax(0), rows.argmax(0), spread.mean(1), torch.ones_like(x).sum(0)

    _check(fn, [torch.randn(size) for size in SIZES], target)


@pytest.mark.parametrize("target", TARGETS)
def test_backward_of_a_sum_of_rows(target: str) -> None:
    """The gradient of a bias sums over rows what is the same in each of them."""
    norm = torch.nn.LayerNorm(8)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return norm(x).sum()

    compiled = symshape.compile(fn, target=target)
    for rows in (5, 3, 17):
        gradients = []
        for run in (compiled, fn):
            x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows), requires_grad=True)
            norm.zero_grad()
            run(x).backward()
            gradients.append([x.grad, *(p.grad.clone() for p in norm.parameters() if p.grad is not None)])
        for result, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_sums_of_rows_inside_of_a_loop(dtype: torch.dtype) -> None:
    """Rows of one block and of several, of which the first are added up without wide numbers."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum((0, 2)), (x * 2 + 1).sum((0, 2)), x.amax((0, 2)), (x > 0).sum((0, 2))

    compiled = symshape.compile(function)
    shapes = ((3, 5, 1), (3, 5, 49), (17, 3, 256), (3, 2, 2048), (4, 3, 4096), (4, 3, 4097), (2, 2, 9001), (0, 3, 9))
    for shape in shapes:
        x = torch.randn(shape).to(dtype)
        if 0 in shape:
            assert torch.equal(symshape.compile(lambda x: x.sum((0, 2)))(x), x.sum((0, 2)))
            continue
        actual, exact = compiled(x), function(x.double())
        within = {torch.float64: 1e-11, torch.float32: 2e-4}.get(dtype, 0.03)
        for mine, wanted in zip(actual[:2], exact[:2]):
            torch.testing.assert_close(mine.double(), wanted, rtol=within, atol=within * shape[2] ** 0.5)
        assert torch.equal(actual[2].double(), exact[2]) and torch.equal(actual[3], exact[3])
        x[0, 0, 0], x[-1, 1, -1] = float("inf"), float("nan")
        assert compiled(x)[0][0].isinf() and compiled(x)[0][1].isnan()
