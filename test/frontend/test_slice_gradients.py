"""Gradients of slices: the operator for steps along the last dim, kernels for all others."""

from __future__ import annotations

import torch
from torch import Tensor

import symshape


def _sliced(x: Tensor, step: int) -> Tensor:
    return (x[..., ::step] * 2).sum() + (x[..., 1::2] * x[..., 1:].sum()).sum() + (x[::3] ** 2).sum()


def _gradients(fn: object, x: Tensor, step: int) -> tuple[Tensor, ...]:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(fn(leaf, step), leaf)  # type: ignore[operator]


def test_gradients_are_those_of_eager_mode() -> None:
    compiled = symshape.compile(_sliced)
    for shape in ((4, 7), (1, 2), (5, 33), (3, 64), (0, 5)):
        for step in (1, 2, 3, 9):
            x = torch.randn(shape)
            torch.testing.assert_close(_gradients(compiled, x, step), _gradients(_sliced, x, step))


def test_steps_along_the_last_dim_are_the_operators() -> None:
    def source(fn: object) -> str:
        (_, backward) = symshape.explain(fn, torch.randn(6, 8, requires_grad=True)).graphs  # type: ignore[arg-type]
        return backward.program_source

    assert "slice_backward" in source(lambda x: x[:, ::3].sin())
    assert "slice_backward" not in source(lambda x: x[::3].sin())
    assert "slice_backward" not in source(lambda x: x[:, 2:].sin())
