"""Reads at computed indices: consecutive in most vectors, and anything at borders."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import symshape

MODES = ("reflect", "replicate", "circular")


def padded(x: Tensor, mode: str) -> Tensor:
    return F.pad(x, (2, 1, 1, 2), mode=mode)


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
