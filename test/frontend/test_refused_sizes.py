"""Calls that are an error in eager mode at some sizes: an error at these sizes only, whichever size came first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

import symshape

zeros = torch.zeros
TAKEN = torch.arange(2)

NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "half of a size": lambda x: x.sum() * (x.shape[0] * 0.5) ** -1,
    "size as a float": lambda x: x.sum() * float(x.shape[0]) ** -x.shape[1],
    "size to a size": lambda x: x.sum() * x.shape[0] ** -x.shape[1],
    "size to a number": lambda x: x.sum() * x.shape[0] ** -1,
    "size to a float": lambda x: x.sum() * x.shape[0] ** -0.5,
    "product": lambda x: x.sum() * x.numel() ** -1,
    "quotient": lambda x: x.sum() * (x.shape[0] / 3) ** -2.0,
    "zero to a size": lambda x: x.sum() + 0 ** (x.shape[0] - 1),
    "inverse of a root": lambda x: x.sum() / math.sqrt(x.shape[0]),
    "root": lambda x: x.sum() + math.sqrt(x.shape[0] - 1),
    "log2": lambda x: x.sum() + math.log2(x.shape[0]),
    "log": lambda x: x.sum() + math.log(x.shape[0]),
    "asin": lambda x: x.sum() + math.asin(x.shape[0] - 1),
    "acos": lambda x: x.sum() + math.acos(x.shape[0] - 1),
    "fmod": lambda x: x.sum() + math.fmod(7, x.shape[0]),
    "modulo": lambda x: x.sum() + x.shape[1] % (x.shape[0] * 0.5),
    "floor": lambda x: x.sum() + 5.0 // x.shape[0],
}

PADDINGS: dict[str, Callable[[Tensor], Any]] = {
    **{
        f"{amounts}": lambda x, amounts=amounts: F.pad(x, (0, 0, *amounts))
        for amounts in [(3, -4), (1, -1), (-4, 3), (-1, -1), (-2, 0), (1, 1)]
    },
    "sizes": lambda x: F.pad(x, (0, 0, x.shape[1] - 1, x.shape[1] - 8)),
    "sizes that are cut": lambda x: F.pad(x, (0, 0, 3 - x.shape[0], 2)),
    "all that there is": lambda x: F.pad(x, (0, 0, 1, 1 - x.shape[0])),
    **{
        f"{mode} {amounts}": lambda x, mode=mode, amounts=amounts: F.pad(x[None], (0, 0, *amounts), mode=mode)
        for mode in ("reflect", "replicate")
        for amounts in [(1, 1), (3, -4), (-1, 2), (-2, -1)]
    },
    "circular": lambda x: F.pad(x[None], (0, 0, 1, 2), mode="circular"),
}

SOURCES: dict[str, Callable[[Tensor], Any]] = {
    "diagonal": lambda x: torch.diagonal_scatter(x, zeros(3)),
    "diagonal of size 1": lambda x: torch.diagonal_scatter(x, zeros(1)),
    "another diagonal": lambda x: torch.diagonal_scatter(x, zeros(2), -2),
    "rank": lambda x: torch.diagonal_scatter(x, zeros(3, 1)),
    "column": lambda x: torch.select_scatter(x, zeros(3), 1, 1),
    "column of size 1": lambda x: torch.select_scatter(x, zeros(1), 1, 1),
    "row": lambda x: torch.select_scatter(x, zeros(4), 0, -3),
    "rows": lambda x: torch.slice_scatter(x, zeros(2, 4), 0, 1, -1),
    "rows of its own": lambda x: torch.slice_scatter(x, x[:2], 0, 1, None),
    "index_copy": lambda x: x.index_copy(1, TAKEN, zeros(3, 2)),
    "index_add": lambda x: x.index_add(1, TAKEN, zeros(3, 2)),
    "index_add_": lambda x: x.clone().index_add_(1, TAKEN, zeros(3, 2)),
    "index_reduce": lambda x: x.index_reduce(1, TAKEN, zeros(3, 2), "amax"),
    "index_put": lambda x: x.index_put((TAKEN,), zeros(3, 4)),
    "index_put of its own": lambda x: zeros(3, 4).index_put((torch.arange(3),), x),
    "as_strided": lambda x: torch.as_strided(x, (3,), (4,)) + 0,
    "as_strided of nothing": lambda x: torch.as_strided(x, (x.shape[0], 10), (1, 1)) + 0,
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, zeros(3), (3,), (4,)),
}

ORDERS = ((3, 5, 1, 0, 2, 4), (5, 3, 2), (0, 3, 1), (1, 4, 0), (2, 5))


def _compare(compiled: Any, function: Any, order: tuple[int, ...]) -> None:
    for n in order:
        x = torch.arange(n * 4.0).reshape(n, 4)
        try:
            wanted = function(x)
        except (ArithmeticError, ValueError, RuntimeError, IndexError):
            with pytest.raises(Exception):  # noqa: B017 - Dynamo gives eager mode's error another type
                compiled(x)
            continue
        torch.testing.assert_close(compiled(x), wanted, equal_nan=True)


@pytest.mark.sample(5)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_arithmetic(name: str, order: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    _compare(symshape.compile(NUMBERS[name]), NUMBERS[name], order)


@pytest.mark.parametrize("name", ["half of a size", "size to a number", "product", "root"])
def test_one_graph_serves_other_sizes(name: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    _compare(symshape.compile(NUMBERS[name]), NUMBERS[name], (4, 2, 3, 7, 5))
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.sample(7)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", [*PADDINGS, *SOURCES])
def test_calls(name: str, order: tuple[int, ...]) -> None:
    function = (PADDINGS | SOURCES)[name]
    _compare(symshape.jit(function), function, order)


@pytest.mark.parametrize("name", ["(3, -4)", "(1, -1)", "column", "rows of its own", "index_add", "index_put"])
def test_calls_with_dynamo(name: str) -> None:
    torch._dynamo.reset()
    function = (PADDINGS | SOURCES)[name]
    _compare(symshape.compile(function), function, ORDERS[0])


OVERLAPPING: dict[str, Callable[[Tensor], Any]] = {
    "select": lambda x: x.select_scatter(zeros(x.shape[0], 4), 1, 1),
    "slice": lambda x: x.slice_scatter(zeros(x.shape[0], 1, 4), 1, 1, 2),
    "diagonal": lambda x: x.diagonal_scatter(zeros(x.shape[0], 3), 0, 1, 2),
}


WINDOWS: dict[str, Callable[[Tensor], Any]] = {
    "select": lambda x: x.unfold(0, 2, 1).select_scatter(x.unfold(0, 2, 1)[0] * 2, 0, 1),
    "slice": lambda x: x.unfold(0, 2, 1).slice_scatter(x.unfold(0, 2, 1)[:1], 0, 1, 2),
    "slice of rows": lambda x: x.unfold(0, 2, 2).slice_scatter(x.unfold(0, 2, 2)[:1] * 3, 0, 1, 2),
    "diagonal": lambda x: x.unfold(0, 2, 1).diagonal_scatter(x.unfold(0, 2, 1).diagonal() * 2),
}


@pytest.mark.parametrize("make", [symshape.jit, symshape.compile], ids=["jit", "compile"])
@pytest.mark.parametrize("name", WINDOWS)
def test_scatters_to_windows(name: str, make: Any) -> None:
    """Eager mode writes to a copy of the memory, in which an element is in several windows."""
    torch._dynamo.reset()
    compiled = make(WINDOWS[name])
    for shape in ((4, 5), (7, 3), (5, 1)):
        x = torch.randn(shape)
        found, wanted = compiled(x), WINDOWS[name](x)
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.parametrize("make", [symshape.jit, symshape.compile], ids=["jit", "compile"])
@pytest.mark.parametrize("name", OVERLAPPING)
def test_scatters_to_what_shares_memory(name: str, make: Any) -> None:
    torch._dynamo.reset()
    compiled = make(OVERLAPPING[name])
    for n in (2, 5, 1):
        x = torch.randn(n, 1, 4).expand(n, 3, 4)
        found, wanted = compiled(x), OVERLAPPING[name](x)
        torch.testing.assert_close(found, wanted)
        assert n == 1 or found.stride() == wanted.stride()
