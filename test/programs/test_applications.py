"""Programs of other domains: equal eager at sizes 0, 1 and more of every dim, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from applications import APPLICATIONS, Application

import symshape

SIZES = (7, 1, 0, 2, 13, 1000)
DIMS = {f"{one.name}, {dim}": (one, dim) for one in APPLICATIONS for dim in one.dims}


def results(function: Callable[..., Any], application: Application, sizes: dict[str, int], gradient: bool) -> Any:
    torch.manual_seed(sum(sizes.values()))
    inputs = [x.requires_grad_(gradient and x.is_floating_point()) for x in application.inputs(**sizes)]
    found = pytree.tree_leaves(function(*inputs))
    outputs = [x for x in found if x.requires_grad]
    leaves = [x for x in inputs if x.requires_grad]
    given = [torch.ones_like(x) for x in outputs]
    return [*found, *(torch.autograd.grad(outputs, leaves, given, allow_unused=True) if outputs else ())]


def check(name: str, wrap: Callable[..., Any], first: int, gradient: bool) -> None:
    application, dim = DIMS[name]
    torch._dynamo.reset()
    compiled = wrap(application.function)
    for n in (first, *(n for n in SIZES if n != first)):
        sizes = {**application.dims, dim: n}
        try:
            expected = results(application.function, application, sizes, gradient)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                results(compiled, application, sizes, gradient)
            continue
        actual = results(compiled, application, sizes, gradient)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*DIMS][::6])
def test_equals_eager(name: str) -> None:
    check(name, symshape.compile, 1, gradient=False)


@pytest.mark.long
@pytest.mark.parametrize("name", DIMS)
@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("first", [7, 1, 0])
@pytest.mark.parametrize("gradient", [False, True])
def test_equals_eager_from_any_size(name: str, wrap: Callable[..., Any], first: int, gradient: bool) -> None:
    check(name, wrap, first, gradient)
