"""Reads at a stride along the lanes: vectors and shuffles of every second to fourth element, and gathers. Nothing is
read behind the end, and what a mask leaves out is zero."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import symshape


def parts(x: Tensor) -> list[Tensor]:
    return [x[:, ::2] + 1, x[:, 1::2] * 2, x[:, ::3] * 2, x[:, 2::4] + 1, x[:, ::5] * 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.uint8, torch.bool])
def test_every_few_elements(dtype: torch.dtype) -> None:
    compiled = symshape.compile(parts)
    for rows, columns in ((1, 4), (3, 31), (2, 32), (2, 33), (5, 64), (1, 65), (3, 257), (0, 9)):
        x = (torch.randn(rows, columns) * 9).abs().to(dtype)
        torch.testing.assert_close(compiled(x), parts(x), rtol=0, atol=0)


def padded(x: Tensor) -> list[Tensor]:
    """The pads are masks of a row, of a column, and of both."""
    pads = (0, 2), (-1, 3), (0, 0, 1, 2), (2, 1, 1, 0)
    return [F.pad(x, pad).t().contiguous() for pad in pads]


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool],
)
def test_columns_of_a_padded_tensor(dtype: torch.dtype) -> None:
    compiled = symshape.compile(padded)
    for rows, columns in ((2, 1), (5, 3), (40, 70), (64, 1), (1, 33), (0, 4)):
        x = torch.randint(1, 99, (rows, columns)).to(dtype)
        torch.testing.assert_close(compiled(x), padded(x), rtol=0, atol=0)


def test_nothing_is_read_behind_the_last_element() -> None:
    from poison import at_a_guard_page  # a page that cannot be read follows, or precedes

    compiled = symshape.compile(parts)
    for columns in (31, 32, 33, 63, 64, 65, 128):
        for _ in range(6):
            x = at_a_guard_page(4 * columns).view(torch.float32).view(1, columns)
            x.copy_(torch.randn(1, columns))
            torch.testing.assert_close(compiled(x), parts(x), rtol=0, atol=0)
