"""Group norms of images in channels-last: on CPUs a call of the operator, with its layout, types and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import symshape


def image(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sizes).to(dtype).to(memory_format=torch.channels_last)


def activated(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    return F.silu(F.group_norm(x, 4, weight, bias))


def test_sizes_and_gradients() -> None:
    compiled = symshape.compile(activated, strict=True)
    for sizes in ((3, 8, 5, 7), (1, 4, 1, 2), (0, 8, 3, 3), (2, 16, 33, 31), (2, 8, 1, 1)):
        found = []
        for each in (compiled, activated):
            torch.manual_seed(0)
            numbers = image(*sizes), torch.randn(sizes[1]), torch.randn(sizes[1])
            x, weight, bias = (one.requires_grad_() for one in numbers)
            result = each(x, weight, bias)
            result.square().sum().backward()
            found.append((result.detach(), x.grad, weight.grad, bias.grad))
            if sizes[0] and sizes[2] > 1:
                assert result.stride() == activated(x, weight, bias).stride()
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parameters", [None, torch.float32, torch.bfloat16])
def test_half_types(parameters: torch.dtype | None) -> None:
    compiled = symshape.compile(activated, strict=True)
    numbers = [] if parameters is None else [torch.randn(8).to(parameters) for _ in range(2)]
    x = image(2, 8, 6, 5, dtype=torch.bfloat16)
    torch.testing.assert_close(compiled(x, *numbers), activated(x, *numbers), rtol=2e-2, atol=2e-2)


def test_what_is_called() -> None:
    (graph,) = symshape.explain(activated, image(2, 8, 6, 5)).graphs
    assert list(map(str, graph.library_calls)) == ["aten.native_group_norm.default"]
    (graph,) = symshape.explain(activated, torch.randn(2, 8, 6, 5)).graphs
    assert not graph.library_calls
    with pytest.raises(RuntimeError, match="divisible"):
        symshape.compile(activated)(image(2, 6, 4, 4))
