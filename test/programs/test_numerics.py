"""The corners of arithmetic, in CPU code and in Triton's interpreter: bit by bit what eager mode gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from numerics import TABLES
from numerics_integers import Corner

Tensor = torch.Tensor
# Of each table: Triton's interpreter runs each operation as a call of numpy.
EVERY = {"cpu": 2, "triton": 8}


def results(function: Callable[..., Any], corners: Sequence[Corner]) -> list[list[Tensor]]:
    """For each corner the tensors that it returns, then the gradient if there is one."""
    tensors = [[x.clone().requires_grad_(c.gradient and x.is_floating_point()) for x in c.tensors] for c in corners]
    found = [[x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)] for result in function(*tensors)]
    wanted = [x for leaves in found for x in leaves if x.requires_grad]
    weights = [torch.arange(x.numel(), dtype=x.dtype).view(x.shape) + 1 for x in wanted]
    into = [own[0] for corner, own in zip(corners, tensors) if corner.gradient]
    gradients = iter(torch.autograd.grad(wanted, into, weights) if into else ())
    found = [[*leaves, *([next(gradients)] if corner.gradient else [])] for corner, leaves in zip(corners, found)]
    return [[x.detach() for x in leaves] for leaves in found]


def difference(corner: Corner, actual: Tensor, expected: Tensor) -> str:
    """What differs; "" if nothing."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype} {tuple(actual.shape)} instead of {expected.dtype} {tuple(expected.shape)}"
    same = actual == expected
    if actual.is_floating_point():
        same |= actual.isnan() & expected.isnan()
        if corner.zero_signs:
            same &= (actual.signbit() == expected.signbit()) | expected.isnan()
    where = (~same).nonzero()
    if not len(where):
        return ""
    place = tuple(where[0].tolist())
    inputs = [x[place].item() if x.shape == actual.shape else "" for x in corner.tensors]
    return f"{actual[place].item()} instead of {expected[place].item()} at {place} for {inputs}, {len(where)} in all"


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("name", TABLES)
def test_equals_eager(name: str, target: str) -> None:
    check(TABLES[name][:: EVERY[target]], target)


@pytest.mark.long
@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("name", TABLES)
def test_equals_eager_everywhere(name: str, target: str) -> None:
    check(TABLES[name], target)


def check(corners: Sequence[Corner], target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton")

    def all_of_them(*tensors: list[Tensor]) -> list[Any]:
        return [corner.function(*own) for corner, own in zip(corners, tensors)]

    compiled = torch.compile(all_of_them, backend="symshape", dynamic=True, options={"target": target})
    expected, actual = results(all_of_them, corners), results(compiled, corners)
    wrong = [
        f"{corner.name}, result {i}: {text}"
        for corner, ours, theirs in zip(corners, actual, expected)
        for i, (x, y) in enumerate(zip(ours, theirs, strict=True))
        if (text := difference(corner, x, y))
    ]
    assert not wrong, "\n".join(wrong)
