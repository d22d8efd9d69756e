"""Sums over an empty slice at the end of a tensor: no load reads behind its memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import symshape

sys.path.append(str(Path(__file__).parent.parent / "programs"))

PROGRAMS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "columns": lambda x, bias, k: (x[k:] * 2).sum(0)[:2] + bias,
    "columns of pairs": lambda x, bias, k: (x[k:] * 2).reshape(-1, 2).sum(0) + bias,
    "of what is joined": lambda x, bias, k: torch.cat([x[k:], x[k:]], -1).reshape(-1, 2).sum(0) * bias,
    "of one column": lambda x, bias, k: torch.cat([x[k:], x[k:]], -1).reshape(-1, 2)[:, 1].sum() + bias,
    "rows": lambda x, bias, k: (x[:, k:] * 2).sum(1)[:2] + bias,
    "mean of squares": lambda x, bias, k: x[k:].square().reshape(-1, 2).mean(0) + bias,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_read_behind_the_tensor(name: str) -> None:
    from poison import at_a_guard_page  # a page that cannot be read follows, or precedes

    program = PROGRAMS[name]
    compiled = symshape.compile(program, fullgraph=True)
    for rows, columns, first in ((8, 8, 8), (16, 4, 2), (128, 256, 257), (8, 16, 8), (4, 6, 9), (2, 4, 1)):
        for _ in range(6):
            memory = at_a_guard_page(4 * rows * (columns + 1)).view(torch.float32).view(rows, columns + 1)
            memory.copy_(torch.randn(rows, columns + 1))
            x, bias = memory[:, 1:], torch.randn(2)
            expected = program(x, bias, first)
            torch.testing.assert_close(compiled(x, bias, first), expected, rtol=1e-4, atol=1e-4, equal_nan=True)
