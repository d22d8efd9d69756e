"""Interpolation: the gradient is eager mode's operator, whatever the mode, the format and the sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import symshape

MODES = [
    ("nearest", 1),
    ("nearest", 2),
    ("nearest", 3),
    ("nearest-exact", 1),
    ("nearest-exact", 2),
    ("nearest-exact", 3),
    ("linear", 1),
    ("bilinear", 2),
    ("bicubic", 2),
    ("trilinear", 3),
]


def compare(run: Any, x: Tensor, times: int = 1) -> None:
    found = []
    for each in (symshape.compile(run, strict=True), run):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        result = each(leaf)
        (gradient,) = torch.autograd.grad(result.square().sum(), leaf, create_graph=times > 1)
        if times > 1:
            (gradient,) = torch.autograd.grad(gradient.square().sum(), leaf)
        found.append((result.detach(), gradient.detach(), gradient.stride()))
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=1e-4, atol=1e-4)
    assert found[0][2] == found[1][2]


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode, dims", MODES)
def test_gradients(mode: str, dims: int) -> None:
    def bigger(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.5, mode=mode)

    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, size=(5, 8, 3)[:dims], mode=mode)

    for sizes in ((1, 1), (2, 3), (3, 17)):
        x = torch.randn(*sizes, *(4 + d for d in range(dims)))
        compare(bigger, x)
        compare(resized, x)
    if mode.endswith("linear") or mode == "bicubic":
        compare(lambda x: F.interpolate(x, scale_factor=2, mode=mode, align_corners=True), x)
    compare(lambda x: F.interpolate(x.sin(), scale_factor=0.5, mode=mode, recompute_scale_factor=True).exp(), x)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_channels_last_and_half_types(mode: str) -> None:
    x = torch.randn(2, 3, 6, 5)
    compare(lambda y: F.interpolate(y, scale_factor=2, mode=mode), x.to(memory_format=torch.channels_last))
    compare(lambda y: F.interpolate(y.transpose(2, 3), scale_factor=2, mode=mode), x)
    compare(lambda y: F.interpolate(y.bfloat16(), scale_factor=2, mode=mode).float(), torch.ones(2, 3, 6, 5))


def test_the_gradient_of_every_size_is_one_call() -> None:
    def bigger(x: Tensor) -> Tensor:
        return F.interpolate(x * 2, scale_factor=2, mode="bilinear")

    compiled = symshape.compile(bigger, strict=True)
    for sizes in ((2, 3, 4, 5), (1, 1, 1, 1), (5, 2, 9, 31)):
        x, y = (torch.ones(sizes).cumsum(-1).requires_grad_() for _ in range(2))
        compiled(x).square().sum().backward()
        bigger(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    report = symshape.explain(bigger, torch.randn(2, 3, 4, 5, requires_grad=True))
    (backward,) = (graph for graph in report.graphs if graph.kind == "backward")
    assert list(map(str, backward.library_calls)) == ["aten.upsample_bilinear2d_backward.default"]


def test_jitted_and_second_gradients() -> None:
    def bigger(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2, mode="bilinear") ** 3

    def gradient(x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(bigger(x).sum(), x, create_graph=True)
        return found

    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    torch.testing.assert_close(symshape.jit(gradient)(x), gradient(x), rtol=1e-4, atol=1e-4)
    squares = torch.func.vmap(torch.func.grad(lambda y: bigger(y[None]).sum()))
    torch.testing.assert_close(symshape.compile(squares)(x.detach()), squares(x.detach()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode, dims", [("nearest", 1), ("nearest", 2), ("nearest-exact", 2), ("nearest", 3)])
def test_elements_are_repeated(mode: str, dims: int) -> None:
    """Images that grow by powers of two: one graph for all sizes, no call, the values and the gradient of a sum."""

    def bigger(x: Tensor) -> Tensor:
        doubled = F.interpolate(x, scale_factor=(2.0, 1.0, 4.0)[:dims], mode=mode)
        return F.interpolate(doubled * 2, size=[2 * size for size in doubled.shape[2:]], mode=mode)

    compiled = symshape.compile(bigger, strict=True)
    for sizes in ((2, 3, 4, 5, 3), (1, 1, 1, 1, 1), (3, 2, 1, 17, 2), (0, 2, 3, 2, 1)):
        x, y = (torch.ones(sizes[: dims + 2]).cumsum(-1).requires_grad_() for _ in range(2))
        found, expected = compiled(x), bigger(y)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        weights = torch.randint(-4, 5, expected.shape).float()
        (found * weights).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    with pytest.raises(Exception, match="should be greater than 0|non-zero|non-empty"):
        compiled(torch.ones(2, 3, *[0] * dims))
    report = symshape.explain(bigger, torch.ones(2, 3, *[4] * dims, requires_grad=True))
    assert not [call for graph in report.graphs for call in graph.library_calls]


def test_an_image_of_one_element_is_not_returned_itself() -> None:
    compiled = torch.compile(lambda x: F.interpolate(x, scale_factor=2), backend="symshape", dynamic=False)
    x = torch.ones(1, 2, 1, 1)
    found = compiled(x)
    assert found.stride() == (8, 4, 2, 1)
    found[0, 0, 0, 0] = 5.0
    assert found.sum() == 12 and x.sum() == 2


@pytest.mark.parametrize("factor", [1.004, 2.004])
def test_nearest_elements_where_the_factor_is_not_the_ratio_of_sizes(factor: float) -> None:
    """Only eager mode's vectorised kernels read by the ratio of the sizes."""

    def resized(x: Tensor, factor: float) -> Tensor:
        return F.interpolate(x, scale_factor=factor)

    torch._dynamo.reset()
    fixed, symbolic = symshape.compile(lambda x: resized(x, factor)), symshape.compile(resized)
    images = [
        torch.randn(sizes) for sizes in ((1, 2, 9), (1, 3, 8, 9), (1, 3, 60, 70), (1, 4, 60, 70), (1, 4, 3, 4, 5))
    ]
    formats = (None, None, None, torch.channels_last, torch.channels_last_3d)
    for x, memory_format in zip(images, formats):
        x = x if memory_format is None else x.to(memory_format=memory_format)
        for found in (fixed(x), symbolic(x, factor)):
            assert torch.equal(found, resized(x, factor))
