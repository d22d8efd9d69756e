"""The parts of grid sampling, and gradients of padding, against eager's operators: all modes, in float64."""

from __future__ import annotations

import itertools

import pytest
import torch

from symshape.frontend.decompositions.grid_sampling import gradients_in_parts, sampled_in_parts
from symshape.frontend.decompositions.padding_gradients import replication_pad_backward

aten = torch.ops.aten


@pytest.mark.parametrize("dims", [2, 3])
def test_grid_sampling(dims: int) -> None:
    forward = aten.grid_sampler_2d if dims == 2 else aten.grid_sampler_3d
    backward = aten.grid_sampler_2d_backward if dims == 2 else aten.grid_sampler_3d_backward
    generator = torch.Generator().manual_seed(dims)
    for *how, size in itertools.product(range(3 if dims == 2 else 2), range(3), (False, True), (1, 5)):
        x = torch.randn(2, 3, *(size, 6, 4)[:dims], generator=generator, dtype=torch.float64)
        grid = torch.rand(2, *(3, 4, 7)[:dims], dims, generator=generator, dtype=torch.float64) * 4 - 2
        expected = forward(x, grid, *how)
        torch.testing.assert_close(sampled_in_parts(x, grid, *how), expected)
        given = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
        both = backward(given, x, grid, *how, [True, True])
        torch.testing.assert_close(gradients_in_parts(given, x, grid, *how, [True, True]), both)


def test_replication() -> None:
    cases = (
        ((2, 5), (1, 3)),
        ((2, 3, 4, 5), (2, -1, -2, 3)),
        ((2, 3, 4, 5), (-1, -2, 0, 1, 3, 1)),
        ((3, 1), (3, 2)),
        ((2, 3, 4, 5), (9, 0, 1, 2)),
        ((2, 3, 1, 4), (8, 1, 2, 3)),
        ((2, 3, 1, 4, 5), (1, 2, 3, 0, 0, 2)),
    )
    for shape, pad in cases:
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        padded = torch.nn.functional.pad(x, pad, "replicate")
        given = torch.randn_like(padded)
        (expected,) = torch.autograd.grad(padded, x, given)
        torch.testing.assert_close(replication_pad_backward(given, x, pad), expected)
