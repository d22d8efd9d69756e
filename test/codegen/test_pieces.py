"""Rows made of several parts (joins, padding): each part has a loop of its own, and results are eager mode's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import symshape
from symshape.codegen.cpu.objects.target import default
from symshape.codegen.cpu.schedule.forms import forms_of
from symshape.tools.report import KernelReport

SIZES = ((0, 3), (1, 1), (2, 5), (3, 16), (5, 17), (1, 40), (7, 33), (4, 129), (2, 2049), (3, 4500), (67, 3))


def joined(x: Tensor) -> list[Tensor]:
    y = x * 2 + 1
    return [torch.cat([x, y, x[:, :1]], -1), torch.cat([x, y[:1]], 0), torch.stack([x, y, x], 1)]


def turned(x: Tensor) -> list[Tensor]:
    half = x.shape[-1] // 2
    return [torch.cat([-x[:, half:], x[:, :half].exp()], -1), x.roll(1, -1), x.roll((2, -1), (0, 1))]


def triangles(x: Tensor) -> list[Tensor]:
    return [x.tril(), x.triu(1), x.tril(-2) + x.triu(3).flip(-1)]


def chosen(x: Tensor) -> list[Tensor]:
    at = torch.arange(x.shape[-1])
    inside = (at >= 2) & (at < x.shape[-1] - 3)
    return [torch.where(at < 3, x, x * x), torch.where(inside, x, -1), torch.where(at.flip(0) <= 4, x.sin(), x)]


def padded(x: Tensor) -> list[Tensor]:
    return [F.pad(x, (2, 1)), F.pad(x, (1, 3, 2, 1), value=7), F.pad(x, (-1, 2)) if x.shape[-1] > 1 else x]


def written(x: Tensor) -> list[Tensor]:
    one = x.clone()
    one[:, 1:] = x[:, :-1] * 3
    two = x.clone()
    two[:, -1:] = 5
    return [one, two, torch.diag_embed(x.flatten()[:9])]


def quarters(x: Tensor) -> list[Tensor]:
    y = x[None].expand(2, -1, -1)
    parts = [y[..., ::2], y[..., ::2] * 2, y[:, :, : (y.shape[-1] + 1) // 2]]
    return [torch.cat(parts, 1), torch.cat([x.new_zeros(1, 1, x.shape[-1]).expand(2, -1, -1), y], 1)]


FUNCTIONS = (quarters, joined, turned, triangles, chosen, padded, written)


def cuts(kernel: KernelReport) -> int:
    """How often the rows of a kernel are cut."""
    return max(form.pieces.count if form.pieces else 0 for form in forms_of(kernel.loops, default()))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_size_in_one_graph(function: Callable[[Tensor], list[Tensor]]) -> None:
    compiled = symshape.compile(function, strict=True)
    for sizes in SIZES:
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), function(x), msg=lambda text, sizes=sizes: f"{sizes}: {text}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_types(dtype: torch.dtype) -> None:
    def moved(x: Tensor) -> list[Tensor]:
        return [torch.cat([x, x[:, :3]], -1), x.roll(1, -1), x.tril(), F.pad(x, (1, 2)), torch.stack([x, x], 0)]

    compiled = symshape.compile(moved, strict=True)
    for sizes in SIZES:
        x = (torch.randn(sizes) * 9).abs().to(dtype)
        torch.testing.assert_close(compiled(x), moved(x), rtol=0, atol=0)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_borders_of_few_points(cpu: str) -> None:
    """A piece of one point, and of at most a vector."""

    def bordered(x: Tensor) -> list[Tensor]:
        y = x.exp()[None]
        return [F.pad(y, (1, 1), mode="replicate"), F.pad(y, (2, 1), mode="reflect"), F.pad(x > 0, (1, 7), value=True)]

    compiled = symshape.compile(bordered, strict=True, cpu=cpu)
    for sizes in ((1, 3), (2, 5), (3, 17), (7, 33), (2, 2049)):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), bordered(x))


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_instruction_sets(cpu: str) -> None:
    def both(x: Tensor) -> list[Tensor]:
        return [*joined(x), *turned(x), *triangles(x)]

    compiled = symshape.compile(both, strict=True, cpu=cpu)
    for sizes in SIZES:
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), both(x))


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda x, y: torch.cat([x, y], -1), 1),
        (lambda x, y: torch.cat([x, y, x], -1), 2),
        (lambda x, y: torch.cat([x, y], 0), 1),  # the dims are one then
        (lambda x, y: torch.where(torch.arange(37) < 5, x, y), 1),
        (lambda x, y: F.pad(x, (1, 2), value=3), 2),
        (lambda x, y: x.tril(), 1),
        (lambda x, y: F.pad(x, (1, 2)), 0),  # one read with a mask
        (lambda x, y: F.pad(x[None], (1, 2), mode="reflect"), 2),
        (lambda x, y: F.pad(x[None], (1, 2), mode="replicate"), 2),
        (lambda x, y: x * 2 + y, 0),
    ],
)
def test_a_row_is_cut_where_its_parts_differ(function: Callable[..., Any], expected: int) -> None:
    (graph,) = symshape.explain(function, torch.randn(9, 37), torch.randn(9, 37)).graphs
    (kernel,) = graph.kernels
    assert cuts(kernel) == expected


def test_pieces_read_neighbours_and_nothing_else() -> None:
    (graph,) = symshape.explain(lambda x: F.pad(x[None], (3, 5), mode="reflect"), torch.randn(9, 37)).graphs
    (kernel,) = graph.kernels
    source = kernel.source
    assert "masked.gather" not in source and "vector.reduction" not in source


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_begin_anywhere(threads: int) -> None:
    """Units are counted by a nest of loops, of which each thread has a part."""

    def around(x: Tensor) -> list[Tensor]:
        permuted = x.permute(0, 2, 3, 1, 4) * 2
        return [F.pad(x, (2, 1, 1, 3, 2, 2), mode="replicate"), permuted.contiguous(), torch.cat([x, x[:, :, 1:]], 2)]

    compiled, before = symshape.compile(around, strict=True), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for sizes in ((3, 5, 13, 11, 67), (1, 7, 31, 3, 259), (2, 1, 2, 1, 4099), (64, 1, 9, 9, 40)):
            x = torch.randn(sizes)
            torch.testing.assert_close(compiled(x), around(x), rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


def test_a_row_that_is_not_computed_reads_nothing() -> None:
    """What is the same in a whole row is read before its loop, and only where the row has points of the piece."""
    sys.path.append(str(Path(__file__).parents[1] / "programs"))
    from poison import guarded  # the memory of arguments ends at a page that cannot be read

    def join(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.relu(x * weight[:, None]), y], 1)

    compiled = symshape.compile(join)
    for batch, few, many, width in ((2, 3, 2000, 67), (1, 1, 1500, 33), (3, 5, 1, 131)):
        given = guarded([torch.randn(batch, few, width), torch.randn(few), torch.randn(batch, many, width)])
        torch.testing.assert_close(compiled(*given), join(*given))
