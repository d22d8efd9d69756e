"""Gradients of `symshape.jit` where a result's size is computed from data-dependent sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import symshape


def _appended(x: Tensor, keep: Tensor) -> Tensor:
    return torch.cat([x, x[keep]]) * 2


def _two_appended(x: Tensor, keep: Tensor) -> Tensor:
    return torch.cat([x[~keep], x, x[keep].sin()])


def _broadcast(x: Tensor, keep: Tensor) -> Tensor:
    return x * torch.nonzero(keep).to(x.dtype)


def _by_counts(x: Tensor, keep: Tensor) -> Tensor:
    return x / (1 + torch.bincount(keep.nonzero()[:, 0], minlength=x.shape[0]))[:, None]


def _flat(x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    kept = x[keep]
    return kept.reshape(-1), torch.stack([kept, kept.exp()]).flatten()


@pytest.mark.sample(3)
@pytest.mark.parametrize("program", [_appended, _two_appended, _broadcast, _by_counts, _flat])
@pytest.mark.parametrize("sizes", [(4, 1, 7, 0), (1, 4), (0, 3)])
def test_gradients(program: Callable[..., Tensor | tuple[Tensor, ...]], sizes: tuple[int, ...]) -> None:
    jitted = symshape.jit(program, options={"strict": True})
    for size in sizes:
        x = torch.randn(size, 4, requires_grad=True)
        keep = torch.ones(size, dtype=torch.bool) if program is _broadcast else torch.rand(size) > 0.4
        found, expected = jitted(x, keep), program(x, keep)
        torch.testing.assert_close(found, expected)
        losses = (sum(one.square().sum() for one in ((y,) if isinstance(y, Tensor) else y)) for y in (found, expected))
        torch.testing.assert_close(*(torch.autograd.grad(loss, x) for loss in losses))
