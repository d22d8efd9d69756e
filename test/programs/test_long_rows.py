"""Few rows, each so long that threads share it: every pass of a kernel is split. Many rows of a few vectors: their sums
over the lanes are made together. Results are near float64's and do not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import symshape

Tensor = torch.Tensor
LONG = ((1, 140_001), (8, 140_000), (2, 300_000), (3, 140_000), (40, 3000))
SHORT = ((16, 17), (33, 31), (100, 64), (17, 200), (16, 257))


def normalised(x: Tensor, w: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    """Passes whose row level gathers, whose outputs are of rows and of elements, and a sum beside what it sums up."""
    soft = torch.softmax(x, 1)
    loss = -torch.log_softmax(x, 1).gather(1, t)
    centred = x - x.mean(1, keepdim=True)
    below = torch.where(centred < 0, centred, torch.zeros((), dtype=x.dtype))
    norm = torch.nn.functional.layer_norm(x, (x.size(1),), w)
    return soft, loss, below, below.sum(1) / x.amax(1), x.argmax(1), norm, x.var(1)


def columns(x: Tensor, w: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    """The same along the first dim, which the lanes do not run along."""
    y = x.t().contiguous()
    centred = y - y.mean(0)
    return centred / y.std(0), y.var(0), torch.logsumexp(y, 0), (y > 0).any(0), y.amin(0), torch.softmax(y, 0)


@pytest.mark.parametrize("program", [normalised, columns])
def test_rows(program: Callable[..., tuple[Tensor, ...]]) -> None:
    compiled, before = symshape.compile(program), torch.get_num_threads()
    for rows, length in (*SHORT, *LONG):
        # Rows that differ, of numbers below 8: the last place of a mean of more is as large as what is allowed.
        x = torch.randn(rows, length) + torch.arange(rows)[:, None] % 9 / 4
        w, t = torch.rand(length), torch.randint(length, (rows, 1))
        exact = program(x.double(), w.double(), t)
        try:
            torch.set_num_threads(1)
            alone = compiled(x, w, t)
            torch.set_num_threads(2)
            shared = compiled(x, w, t)
        finally:
            torch.set_num_threads(before)
        for number, (one, two, expected) in enumerate(zip(alone, shared, exact, strict=True)):
            case = f"result {number} of {rows}x{length}"
            assert torch.equal(one, two), case
            near = expected.to(one.dtype)
            torch.testing.assert_close(one, near, rtol=2e-6, atol=2e-6, msg=lambda m, c=case: f"{c}: {m}")


def test_invalid_numbers_stay_in_their_rows() -> None:
    compiled = symshape.compile(lambda x: (x.amax(1), x.amin(1), torch.softmax(x, 1), x.sum(1)))
    for rows, length in ((16, 40), (33, 100), (2, 300_000)):
        x = torch.randn(rows, length)
        x[0, length // 2], x[1, 3] = float("nan"), float("inf")
        for actual, expected in zip(compiled(x), (x.amax(1), x.amin(1), torch.softmax(x, 1), x.sum(1)), strict=True):
            torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-5, atol=1e-4)


def moments(x: Tensor) -> tuple[Tensor, ...]:
    """What rows that leave the cache are read once for; beside it sums and extrema of the same pass."""
    centred = x - x.mean(1, keepdim=True)
    return x.var(1), x.std(1, correction=0), (centred * centred).sum(1), x.var(1) + x.amax(1), x.sum(1), x.argmin(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_variance_of_rows_that_are_read_once(dtype: torch.dtype) -> None:
    """Nothing cancels: of a mean far from 0, sorted numbers, blocks that are far apart."""
    compiled = symshape.compile(moments)
    for rows, length in ((3, 65_535), (3, 65_536), (1, 200_003), (9, 70_001)):
        x = torch.randn(rows, length, dtype=dtype) + 1000
        if rows > 1:
            x[1] = x[1].sort().values
            x[2] = torch.where(torch.arange(length) < 5000, 0, x[2])
        exact = moments(x.double())
        for number, (actual, expected) in enumerate(zip(compiled(x), exact, strict=True)):
            case = f"result {number} of {rows}x{length}"
            near = expected.to(actual.dtype)
            torch.testing.assert_close(actual, near, rtol=2e-6, atol=0, msg=lambda m, c=case: f"{c}: {m}")


def test_variance_of_invalid_numbers_in_rows_that_are_read_once() -> None:
    compiled = symshape.compile(moments)
    for rows, length in ((4, 70_001), (9, 65_537)):
        x = torch.randn(rows, length)
        x[0, length // 2], x[1, 3], x[2] = float("nan"), float("inf"), 1e38  # whose sum is infinite
        for actual, expected in zip(compiled(x), moments(x), strict=True):
            torch.testing.assert_close(actual, expected, equal_nan=True, rtol=1e-4, atol=0)
