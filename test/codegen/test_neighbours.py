"""Reads at computed indices that are mostly consecutive: one load where they are, and right results everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import symshape

MODES = ("reflect", "replicate", "circular")


def padded(x: Tensor, mode: str) -> Tensor:
    return F.pad(x, (2, 1, 1, 2), mode=mode)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_padding_in_one_kernel(mode: str, dtype: torch.dtype) -> None:
    compiled = symshape.compile(padded)
    for height, width in ((3, 3), (4, 17), (31, 64), (7, 129), (3, 1031)):
        x = torch.randn(2, 3, height, width).to(dtype)
        x[0, 0, 0, 0], x[1, 2, -1, -1] = float("nan"), float("inf")
        for one in (x, x.transpose(2, 3).contiguous().transpose(2, 3), x[..., ::2] if width > 6 else x, x[:0]):
            torch.testing.assert_close(compiled(one, mode), padded(one, mode), rtol=0, atol=0, equal_nan=True)
    (graph,) = symshape.explain(padded, torch.randn(2, 3, 9, 8), mode).graphs
    assert len(graph.kernels) == 1 and not graph.kernels[0].loops.checks_index


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_padding(mode: str) -> None:
    compiled = symshape.compile(padded)
    for height, width in ((3, 3), (4, 17), (31, 64)):
        x = torch.randn(2, 3, height, width)
        found = []
        for each in (compiled, padded):
            leaf = x.clone().requires_grad_()
            each(leaf, mode).square().sum().backward()
            found.append(leaf.grad)
        torch.testing.assert_close(*found)


@pytest.mark.long
def test_circular_padding_of_any_rank_and_amount() -> None:
    def around(x: Tensor, amounts: list[int]) -> Tensor:
        return F.pad(x, amounts, mode="circular")

    for rank in (1, 2, 3):
        compiled = symshape.compile(around)
        for size in (3, 5, 18):
            x = torch.randn(2, 3, *(size + k for k in range(rank)))
            for amounts in ([3, 3] * rank, [0, 1] * rank, [2, 0] * rank, [0, 0] * rank):
                found, wanted = compiled(x, amounts), around(x, amounts)
                torch.testing.assert_close(found, wanted, rtol=0, atol=0)
                assert found.stride() == wanted.stride()
            jitted = symshape.jit(lambda y, rank=rank: around(y, [1, 2] * rank) * 2)
            torch.testing.assert_close(jitted(x), around(x, [1, 2] * rank) * 2)
            with pytest.raises(RuntimeError, match="wrapping around more than once"):
                symshape.compile(lambda y, n=size + 4, rank=rank: around(y, [n, 0] * rank))(x)


def mirrored(x: Tensor, shift: int) -> list[Tensor]:
    """Indices of every kind: consecutive, all the same, back to front, and far apart."""
    i = (torch.arange(x.shape[-1]) - shift).abs()
    return [x[:, i], x[:, i.clamp(max=2)], x[:, -1 - i], x[:, i * 5 % x.shape[-1]]]


def test_indices_of_every_kind() -> None:
    compiled = symshape.compile(mirrored)
    for dtype in (torch.float32, torch.int64, torch.bool, torch.uint8, torch.float16):
        for width, shift in ((3, 1), (16, 5), (33, 0), (64, 40), (1031, 9)):
            x = (torch.randn(3, width) * 9).abs().to(dtype)
            torch.testing.assert_close(compiled(x, shift), mirrored(x, shift))
    with pytest.raises(IndexError):
        compiled(torch.randn(3, 16), 17)


def picked(x: Tensor, i: Tensor, shift: int) -> list[Tensor]:
    """Indices that lie within one or two vectors, in order or not, made of the point or read for each lane."""
    last = x.shape[-1] - 1
    j = torch.arange(x.shape[-1])
    return [
        x[:, j // 2],
        x[:, (j * 2).clamp(max=last)],
        x[:, (j // 3 + shift).clamp(max=last)],
        x[:, (j // 4 * 4 + 3 - j % 4).clamp(max=last)],
        x[:, i],
        x[:, i // 2] * x[:, (i // 2 + 1).clamp(max=last)],
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float64, torch.bfloat16])
def test_indices_within_two_vectors(dtype: torch.dtype) -> None:
    compiled = symshape.compile(picked)
    for width in (3, 16, 31, 32, 33, 64, 257):
        whole = (torch.randn(3, width) * 9).to(dtype)
        for x in (whole, whole[:1], whole[:0]):
            for i in (torch.arange(width) // 3, torch.randperm(width), (torch.arange(width) - 40).clamp(min=0)):
                for shift in (0, 20):
                    found, wanted = compiled(x, i, shift), picked(x, i, shift)
                    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_nothing_is_read_behind_the_last_element() -> None:
    from poison import guarded  # the memory of arguments ends at a page that cannot be read

    compiled = symshape.compile(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"))
    chosen = symshape.compile(picked)
    for width in (5, 8, 16, 17, 40, 128):
        for _ in range(3):  # or begins behind one, by chance
            x, i = guarded([torch.randn(1, 1, 2, width), torch.arange(width)])
            torch.testing.assert_close(compiled(x), F.interpolate(x, scale_factor=2, mode="bilinear"))
            torch.testing.assert_close(chosen(x[0, 0], i, 3), picked(x[0, 0], i, 3))
