"""Reads at a stride along the lanes: vectors and shuffles of every second to fourth element, and gathers. Nothing is
read behind the end, and what a mask leaves out is zero."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import symshape
from symshape.codegen.cpu.objects import target
from symshape.machine import instruction_sets


def parts(x: Tensor) -> list[Tensor]:
    return [x[:, ::2] + 1, x[:, 1::2] * 2, x[:, ::3] * 2, x[:, 2::4] + 1, x[:, ::5] * 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.uint8, torch.bool])
def test_every_few_elements(dtype: torch.dtype) -> None:
    compiled = symshape.compile(parts)
    for rows, columns in ((1, 4), (3, 31), (2, 32), (2, 33), (5, 64), (1, 65), (3, 257), (0, 9)):
        x = (torch.randn(rows, columns) * 9).abs().to(dtype)
        torch.testing.assert_close(compiled(x), parts(x), rtol=0, atol=0)


def of_short_rows(x: Tensor) -> list[Tensor]:
    """No element of a row is beside the next."""
    diagonal, second = x.diagonal(dim1=1, dim2=2), x[:, 0, ::2]
    return [diagonal.sum(-1), (diagonal * 2).amax(-1), second.mean(-1), x[:, ::2, 1].argmin(-1), diagonal.softmax(-1)]


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_short_rows_of_elements_that_lie_apart(cpu: str) -> None:
    if cpu not in (instruction_sets.NATIVE, *instruction_sets.held()):
        pytest.skip("this processor lacks the instructions")
    compiled = symshape.compile(of_short_rows, strict=True, cpu=cpu)
    for rows, size in ((3, 5), (40, 2), (16, 3), (33, 12), (100, 5), (35, 13), (1, 4), (20, 40)):
        x = torch.randn(rows, size, size)
        torch.testing.assert_close(compiled(x), of_short_rows(x))


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


def gathered(x: Tensor, rows: Tensor, columns: Tensor) -> list[Tensor]:
    return [x.gather(1, columns), x[:, columns[0]], x.flatten()[rows], x[rows, columns[0, 0]], x[:, :: x.size(1) - 2]]


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool])
def test_an_address_for_each_lane(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, gathers: bool) -> None:
    """With an instruction for all lanes, and with a load for each."""
    usual = target.target_of
    monkeypatch.setenv("SYMSHAPE_CACHE", "0")
    monkeypatch.setattr(target, "target_of", lambda level: dataclasses.replace(usual(level), gathers=gathers))
    torch._dynamo.reset()
    compiled = symshape.compile(gathered)
    for height, width, count in ((3, 5, 2), (20, 33, 16), (40, 64, 17), (4, 3, 40), (2, 4, 0)):
        x = torch.randint(0, 99, (height, width)).to(dtype)
        rows, columns = torch.randint(0, height, (count,)), torch.randint(0, width, (height, max(count, 1)))
        found, expected = compiled(x, rows, columns), gathered(x, rows, columns)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_only_some_processors_load_each_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, gathers in (("znver4", False), ("sapphirerapids", True)):
        monkeypatch.setattr(instruction_sets, "processor", lambda level, name=name: (name, ""))
        assert target.target_of.__wrapped__(instruction_sets.NATIVE).gathers == gathers
    for level in instruction_sets.held():
        assert target.target_of(level).gathers
