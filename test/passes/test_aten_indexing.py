"""Indexing, joining, padding and reordering against eager, at several sizes, with the errors of bad indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from lowering import check, lower

aten = torch.ops.aten
F32, I64 = torch.float32, torch.int64
Case = tuple[Callable[..., Any], Callable[[int, int], Sequence[Any]]]


def values(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count) * 7 % 23) - 5).reshape(shape).to(dtype)


def indices(*shape: int, size: int, low: int = 0, dtype: torch.dtype = I64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size + len(shape))
    return torch.randint(low, size, shape, generator=generator).to(dtype)


def any_dtype(n: int, m: int) -> list[torch.Tensor]:
    dtypes = (F32, torch.bfloat16, torch.float64, I64, torch.uint8, torch.bool)
    return [values(n, m, dtype=dtype) for dtype in dtypes]


def of_each(operation: Callable[[torch.Tensor], Any]) -> Callable[..., list[Any]]:
    return lambda *tensors: [operation(x) for x in tensors]


GATHERS: dict[str, Case] = {
    "embedding": (
        lambda w, i: [aten.embedding.default(w, i), aten.embedding.default(w, i, 0), aten.embedding.default(w, i[0])],
        lambda n, m: [values(n, m), indices(m, 5, size=n)],
    ),
    "embedding of bf16, int32 indices": (
        lambda w, i: aten.embedding.default(w, i),
        lambda n, m: [values(n, m, dtype=torch.bfloat16), indices(m + 1, size=n, dtype=torch.int32)],
    ),
    "index_select": (
        lambda x, i, j: [aten.index_select.default(x, 0, i), aten.index_select.default(x, -1, j)],
        lambda n, m: [values(n, m), indices(n + 2, size=n), indices(3, size=m)],
    ),
    "gather": (
        lambda x, i, j: [aten.gather.default(x, 1, i), aten.gather.default(x, -2, j)],
        lambda n, m: [values(n, m), indices(n, m + 1, size=m), indices(n - 1, m - 1, size=n)],
    ),
    "take": (
        lambda x, i: aten.take.default(x, i),
        lambda n, m: [values(n, m, 3), indices(m, 4, size=n * m * 3, low=-n * m * 3)],
    ),
    "index": (
        lambda x, i, j: [
            aten.index.Tensor(x, [i]),
            aten.index.Tensor(x, [None, j]),
            aten.index.Tensor(x, [i, j]),
            aten.index.Tensor(x, [None, None, i[:, None]]),
            aten._unsafe_index.Tensor(x, [None, i, j]),
        ],
        lambda n, m: [values(n, m, 9), indices(n + 2, size=min(n, m, 9), low=-2), indices(n + 2, size=m, low=-m)],
    ),
    "index, broadcast": (
        lambda x, i, j: [
            aten.index.Tensor(x, [i[:, None], j]),
            aten.index.Tensor(x, [i[:, None], None, j]),
            aten.index.Tensor(x, [None, i[:, None, None], j]),
            aten.index.Tensor(x, [i[0], None, j[0]]),
        ],
        lambda n, m: [values(n, m, 6), indices(4, size=min(n, m), low=-1), indices(m + 1, size=min(m, 6))],
    ),
    "index, not adjacent": (
        lambda x, i, j: [aten.index.Tensor(x, [i, None, j]), aten.index.Tensor(x, [None, i, None, j])],
        lambda n, m: [values(n, m, 4, 3), indices(5, size=min(n, m)), indices(5, size=3)],
    ),
    "scatter, one index a row": (
        lambda x, i, s: [  # the index has as many rows as x
            aten.scatter.value(x, 1, i.expand_as(x)[:, 1:2], 9),
            aten.scatter.value(x, 0, (i + x.long() * 0)[:1] % 3, 7),
            aten.scatter.src(x, -1, i.expand_as(x)[:, :1], s),
        ],
        lambda n, m: [values(n, m), indices(m, size=m), values(n, 3)],
    ),
}

JOINS: dict[str, Case] = {
    "cat": (
        lambda x, y, z: [
            aten.cat.default([x, y], 0),
            aten.cat.default([x, z], 1),
            aten.cat.default([y, x, y], -2),
            aten.cat.default([x]),
        ],
        lambda n, m: [values(n, m), values(n + 2, m) * 2, values(n, 3)],
    ),
    "cat of dtypes": (
        lambda x, y, e: [aten.cat.default([x, y], 0), aten.cat.default([e, x], 1)],
        lambda n, m: [values(n, m, dtype=torch.float16), values(3, m, dtype=I64), torch.empty(0, dtype=torch.float16)],
    ),
    "cat with an empty piece": (
        lambda x, y: aten.cat.default([x[:0], y, x], 0),
        lambda n, m: [values(n, m), values(2, m)],
    ),
    "pad": (
        lambda *tensors: [aten.constant_pad_nd.default(x, p, 2) for x in tensors for p in ([1, 2], [0, 0, 3, 0])],
        any_dtype,
    ),
    "pad, signs": (
        lambda x: [
            aten.constant_pad_nd.default(x, [1, 2]),
            aten.constant_pad_nd.default(x, [-1, 1, 2, -2], 0.5),
            aten.constant_pad_nd.default(x, [0, -1]),
            aten.constant_pad_nd.default(x, [x.shape[0], x.shape[1] - 1]),
            aten.constant_pad_nd.default(x, [0, 1, 1 - x.shape[0], 0], float("-inf")),
        ],
        lambda n, m: [values(n, m)],
    ),
    "slice_scatter": (
        lambda x: [
            aten.slice_scatter.default(x, x[:2] * 9, 0, 1, 3),
            aten.slice_scatter.default(x, x[:, 1::2] * 9, 1, 1, 2**63 - 1, 2),
            aten.slice_scatter.default(x, x[2:4] * 9, 0, -2),
            aten.slice_scatter.default(x, x * 2),
        ],
        lambda n, m: [values(n, m)],
    ),
    "select_scatter": (
        lambda x, y, z: [aten.select_scatter.default(x, y, 0, 2), aten.select_scatter.default(x, z, -1, -1)],
        lambda n, m: [values(n, m), values(m) * 10, values(n) * 10],
    ),
    "flip": (of_each(lambda x: torch.ops.prims.rev.default(x, [0])), any_dtype),
    "diagonal scatter": (
        lambda x, s: [aten.diagonal_scatter.default(x, s[: x.shape[0] - 1], k) for k in (1, -1)],
        lambda n, m: [values(n, n), values(n)],
    ),
    "as strided": (
        lambda x: [aten.as_strided.default(x, [x.shape[0], 2], [1, 1]), aten.as_strided.default(x, [2, 3], [0, 2], 1)],
        lambda n, m: [values(n, 7)],
    ),
    "flip two": (
        lambda x: [torch.ops.prims.rev.default(x, [2, 0]), torch.ops.prims.rev.default(x, [])],
        lambda n, m: [values(n, m, 2)],
    ),
    "roll": (
        lambda x: [
            aten.roll.default(x, [1], [0]),
            aten.roll.default(x, [-2, 3], [1, 0]),
            aten.roll.default(x, [x.shape[0] + 1], [1]),
            aten.roll.default(x, [100], [0]),
        ],
        lambda n, m: [values(n, m)],
    ),
    "repeat": (
        lambda x: [
            aten.repeat.default(x, [2, 1]),
            aten.repeat.default(x, [2, 3]),
            aten.repeat.default(x, [3, 1, 2]),
            aten.repeat.default(x, [x.shape[0], 1]),
        ],
        lambda n, m: [values(n, m)],
    ),
    "unfold": (
        lambda x: [aten.unfold.default(x, 0, 2, 1), aten.unfold.default(x, 1, 3, 2)],
        lambda n, m: [values(n, m)],
    ),
    "diagonal": (
        lambda x: [
            aten.diagonal.default(x),
            aten.diagonal.default(x, 1),
            aten.diagonal.default(x, -1, 1, 2),
            aten.diagonal.default(x, 0, 2, 0),
        ],
        lambda n, m: [values(n, n, m)],
    ),
}
SIZES = ((5, 6), (7, 5), (6, 9))


@pytest.mark.parametrize("name", [*GATHERS, *JOINS])
def test_rule(name: str) -> None:
    function, make = {**GATHERS, **JOINS}[name]
    check(function, *(make(n, m) for n, m in SIZES))


@pytest.mark.parametrize("size", [(1, 4), (4, 1), (0, 4), (2, 0)])
@pytest.mark.parametrize("name", ["flip two", "cat of dtypes", "pad"])
def test_small_sizes(name: str, size: tuple[int, int]) -> None:
    function, make = JOINS[name]
    check(function, make(*size))


BAD: dict[str, tuple[Callable[..., Any], torch.Tensor, str]] = {
    "embedding": (lambda w, i: aten.embedding.default(w, i), torch.tensor([1, 9, 0]), "index out of range in self"),
    "embedding, negative": (lambda w, i: aten.embedding.default(w, i), torch.tensor([1, -1, 0]), "index out of range"),
    "index_select": (lambda x, i: aten.index_select.default(x, 0, i), torch.tensor([0, -1, 1]), "index out of range"),
    "index": (lambda x, i: aten.index.Tensor(x, [None, i]), torch.tensor([0, -7, 1]), "out of bounds for dimension 1"),
    "gather": (
        lambda x, i: aten.gather.default(x, 0, i[:, None]),
        torch.tensor([0, 6, 1]),
        "out of bounds for dimension",
    ),
    "take": (lambda x, i: aten.take.default(x, i), torch.tensor([0, 99, 1]), "out of range"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_index(name: str) -> None:
    function, bad, message = BAD[name]
    lowered = lower(function, [values(4, 6), torch.tensor([0, 1, 2])])
    assert not lowered.kept
    with pytest.raises((IndexError, RuntimeError)):
        function(values(4, 6), bad)
    with pytest.raises(IndexError, match=message):
        lowered.run([values(4, 6), bad])


KEPT: dict[str, tuple[Callable[..., Any], Callable[[], Sequence[Any]], str]] = {
    "many pieces": (lambda x: aten.cat.default([x] * 9), lambda: [values(4, 6)], "9 pieces"),
    "flat roll": (lambda x: aten.roll.default(x, [1]), lambda: [values(4, 6)], "flattened"),
    "sum of bools": (
        lambda x, i: aten.index_put.default(x > 0, [i], x[i] > 0, True),
        lambda: [values(4), torch.tensor([1, 2])],
        "bool",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_library_call(name: str) -> None:
    function, make, reason = KEPT[name]
    lowered = check(function, make(), native=False)
    assert reason in " ".join(lowered.kept.values())
