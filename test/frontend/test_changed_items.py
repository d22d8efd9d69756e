"""Items at a data-dependent index that are read, changed and written back, and what else may happen in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape


def added(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    cache[:, i] += row
    return row + 1


def added_and_read(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    cache[:, i] += row
    cache[..., i, :] *= 2
    return cache[:, i].sum(-1) + cache[:, i, :].transpose(0, 1).amax(0)


def on_ellipsis(cache: Tensor, i: Tensor, row: Tensor) -> None:
    cache[..., i] -= row.sum(-1, keepdim=True)
    cache[i] /= 2


def index_changes(cache: Tensor, i: Tensor, row: Tensor) -> None:
    cache[:, i] += row * i.sub_(1)


def cache_changes(cache: Tensor, i: Tensor, row: Tensor) -> None:
    cache[:, i] += cache.mul_(2)[:, 0] + row


def view_is_kept(cache: Tensor, i: Tensor, row: Tensor) -> Any:
    view = cache[:, i]
    view += row
    total = cache.sum()
    cache[:, i] = view
    return total, view


def view_is_returned(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    part = cache[:, i]
    part.mul_(2)
    return part


def memory_is_read(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    return torch.as_strided(cache[:, i], (2, 2), (1, 1)) + 1


def other_index(cache: Tensor, i: Tensor, row: Tensor) -> None:
    cache[:, i] += row
    cache[:, i - 1] = cache[:, i]


def product(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    return row @ cache[i].mT


STEPS = (
    added,
    added_and_read,
    on_ellipsis,
    index_changes,
    cache_changes,
    view_is_kept,
    view_is_returned,
    memory_is_read,
    other_index,
    product,
)


def inputs(size: int, position: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    cache, row = torch.randn(size, size, size) * 8, torch.randn(size, size) * 8
    return cache.to(dtype), torch.tensor(position), row.to(dtype)


@pytest.mark.sample(4)
@pytest.mark.parametrize("entry", ["compile", "backend", "jit"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_items_are_eager_modes(step: Callable[..., Any], entry: str) -> None:
    compiled: Any = getattr(symshape, entry)(step) if entry != "backend" else None
    if entry == "backend":
        compiled = torch.compile(step, backend="symshape", dynamic=True)
    for size, position in ((5, 2), (3, 1), (7, 6), (4, 3), (17, -3)):
        mine, theirs = inputs(size, position), inputs(size, position)
        expected, actual = step(*theirs), compiled(*mine)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(mine, theirs)
        if step is view_is_returned:
            assert actual.untyped_storage().data_ptr() == mine[0].untyped_storage().data_ptr()


@pytest.mark.parametrize("step", [added, added_and_read, on_ellipsis])
def test_types_and_indices_out_of_range(step: Callable[..., Any]) -> None:
    compiled = symshape.compile(step)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        mine, theirs = inputs(5, 4, dtype), inputs(5, 4, dtype)
        torch.testing.assert_close(compiled(*mine), step(*theirs))
        exact = [x.double() if x.is_floating_point() else x for x in inputs(5, 4, dtype)]
        step(*exact)
        # A sum of half types that is not stored is not rounded: where it cancels, eager mode is the one that is off.
        off = (theirs[0] - exact[0]).abs().max().item()
        torch.testing.assert_close(mine[0].double(), exact[0], rtol=torch.finfo(dtype).eps, atol=max(off, 1e-12))
        torch.testing.assert_close(mine[1:], theirs[1:], rtol=0, atol=0)
    for size, position in ((5, 5), (4, -5)):
        mine = inputs(size, position)
        with pytest.raises(IndexError):
            compiled(*mine)
        torch.testing.assert_close(mine, inputs(size, position))


def test_a_cache_is_not_copied_for_its_item() -> None:
    torch._dynamo.reset()
    for step in (added, added_and_read):
        (graph,) = symshape.explain(step, *inputs(9, 2)).graphs
        assert graph.statistics["write-inputs"]["written"] == 1 and not graph.statistics["write-inputs"]["left"]
        assert "aten_select" not in graph.program_source
        assert ".item()" not in graph.program_source  # nothing is waited for
        lines = graph.program_source.splitlines()
        (length,) = (line.split()[0] for line in lines if line.endswith("= arg0.size(1)"))
        assert not [x for x in lines if "empty_strided" in x and re.search(rf"\b{length}\b", x)]


def test_gradients_of_changed_items() -> None:
    def function(x: Tensor, i: Tensor, row: Tensor) -> Tensor:
        x = x * 2
        x[:, i] += row * row
        return (x * x)[:, i].sum() + x.sin().sum()

    compiled = symshape.compile(function)
    for size, position in ((5, 2), (3, -1)):
        found = []
        for each in (compiled, function):
            x, i, row = inputs(size, position)
            leaves = x.requires_grad_(), row.requires_grad_()
            each(leaves[0], i, leaves[1]).backward()
            found.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
