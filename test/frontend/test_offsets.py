"""Views that start at a data-dependent position: every start, from the front and the end, and those out of range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.tools.measure import Graphs


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def _start(i: torch.Tensor) -> Any:
    return (i * 1).item()  # of a tensor that is computed: an argument's item would be a guard


def narrow(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.narrow(0, _start(i), 3) * 2


def select(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[_start(i)] * 2


def slice_from(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[_start(i) :] * 2


def slice_columns(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[1:, _start(i) :: 2] * 2


def slice_of_select(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    n = _start(i)
    return x[n][n:] * 2


@pytest.mark.parametrize("fn", [narrow, select, slice_from, slice_columns, slice_of_select])
def test_every_start(fn: Callable[..., torch.Tensor]) -> None:
    compiled = symshape.compile(fn)
    with Graphs() as graphs:
        for rows, columns in ((10, 4), (6, 7)):
            x = torch.randn(rows, columns)
            for start in range(-rows - 2, rows + 3):
                i = torch.tensor(start)
                try:
                    expected = fn(x, i)
                except (RuntimeError, IndexError):
                    with pytest.raises((RuntimeError, IndexError)):
                        compiled(x, i)
                else:
                    torch.testing.assert_close(compiled(x, i), expected)
    assert graphs.graphs == 1
