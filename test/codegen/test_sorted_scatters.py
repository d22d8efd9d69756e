"""Scatters by indices that ascend: the same bits as by others, in any number of threads, and the same errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from loop_builder import D0, D1, D2, KINDS, SYMBOLS, Builder, build, cpu_target, threads

import symshape
from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.prover.numbers.expr import Expr

__all__ = ["cpu_target"]
P, W, R, B = SYMBOLS  # points, width, rows, batch
IDENTITY: dict[str, float] = {"add": 0, "mul": 1, "max": -math.inf, "min": math.inf}


def rows(combiner: str, dtype: str = "f32") -> Builder:
    """out[index[p], w] = x[index[p], w] combined with values[p, w], for all p in order."""
    b = Builder(f"rows_{combiner}_{dtype}", [P, W], [0], symbols=4)
    x, values, index = b.arg(dtype, [R, W]), b.arg(dtype, [P, W]), b.arg("i64", [P])
    out = b.arg(dtype, [R, W], output=True)
    at = [_checked(b, index, D0), b.add("index", dtype="index", address=D1)]
    _scatter(b, combiner, dtype, b.load(values, D0 * W + D1), at, x, out)
    return b


def elements(combiner: str) -> Builder:
    """The same without the dim of width."""
    b = Builder(f"elements_{combiner}", [P], [0], symbols=4)
    x, values, index, out = b.arg("f32", [R]), b.arg("f32", [P]), b.arg("i64", [P]), b.arg("f32", [R], output=True)
    _scatter(b, combiner, "f32", b.load(values, D0), [_checked(b, index, D0)], x, out)
    return b


def batches() -> Builder:
    """out[b, index[p], w] += values[b, p, w]."""
    b = Builder("batches", [B, P, W], [1], symbols=4)
    x, values, index = b.arg("f32", [B, R, W]), b.arg("f32", [B, P, W]), b.arg("i64", [P])
    out = b.arg("f32", [B, R, W], output=True)
    at = [b.add("index", dtype="index", address=D0), _checked(b, index, D1), b.add("index", dtype="index", address=D2)]
    _scatter(b, "add", "f32", b.load(values, (D0 * P + D1) * W + D2), at, x, out)
    return b


def _checked(b: Builder, index: int, address: Expr) -> int:
    return b.add("check_index", b.load(index, address), dtype="index", address=R)


def _scatter(b: Builder, combiner: str, dtype: str, value: int, at: list[int], x: int, out: int) -> None:
    b.add("scatter", value, *at, dtype=dtype, results=[], arg=out, value=x, combiner=combiner)


def run(kernel: Any, x: torch.Tensor, values: torch.Tensor, index: torch.Tensor, batch: int = 1) -> torch.Tensor:
    out, slot = torch.empty_like(x), torch.zeros(1, dtype=torch.int64)
    width = x.shape[-1] if x.dim() > 1 else 1
    kernel(x, values, index, out, index.shape[0], width, x.shape[1 if x.dim() == 3 else 0], batch, slot)
    assert not slot.item()
    return out


def descending(values: torch.Tensor, index: torch.Tensor, combiner: str, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """The same with a point more, which changes nothing, and whose index is the first: not in order any longer."""
    info = None if values.is_floating_point() else torch.iinfo(values.dtype)
    neutral = IDENTITY[combiner]
    if info is not None and math.isinf(neutral):
        neutral = info.min if neutral < 0 else info.max
    point = torch.full_like(values.narrow(dim, 0, 1), neutral)
    return torch.cat([values, point], dim), torch.cat([index, index.new_zeros(1)])


def ascending(rows: int, points: int) -> list[torch.Tensor]:
    """Indices at random; all the same; of two rows, one of which has nearly all points; each row once and again."""
    generator = torch.Generator().manual_seed(rows + points)
    spread = torch.randint(0, rows, (points,), generator=generator).sort().values
    skewed = torch.zeros(points, dtype=torch.int64)
    skewed[-3:] = rows - 1
    return [spread, torch.full((points,), rows // 2), skewed, torch.arange(points) * rows // points]


def assert_same_bits(kernel: Any, combiner: str, x: torch.Tensor, values: torch.Tensor, dim: int = 0) -> None:
    points, batch = values.shape[dim], x.shape[0] if dim else 1
    for index in ascending(x.shape[dim], points):
        more, unsorted = descending(values, index, combiner, dim)
        with threads(1):
            expected = run(kernel, x, more.contiguous(), unsorted, batch)
        for count in (1, 2, 3):
            with threads(count):
                assert torch.equal(run(kernel, x, values, index, batch), expected)


@pytest.mark.parametrize("combiner", ["add", "mul", "max", "min"])
def test_rows(combiner: str) -> None:
    """Rows of whole vectors, of a part of one, and of many; fewer points than a unit has, and many units."""
    (kernel,) = build(rows(combiner))
    for count, points in ((40, 1024), (7, 5000), (1, 1100)):
        for width in (16, 3, 131, 64):
            assert_same_bits(kernel, combiner, torch.randn(count, width), torch.randn(points, width) + 0.5)


def test_elements() -> None:
    (kernel,) = build(elements("add"))
    for count, points in ((40, 1024), (200, 5000), (1, 2049)):
        assert_same_bits(kernel, "add", torch.randn(count), torch.randn(points))


def test_batches() -> None:
    (kernel,) = build(batches())
    assert_same_bits(kernel, "add", torch.randn(3, 17, 20), torch.randn(3, 4000, 20), 1)


@pytest.mark.parametrize("dtype", ["f64", "i64", "i32", "ui8"])
def test_dtypes(dtype: str) -> None:
    sums, largest = build(rows("add", dtype), rows("max", dtype))
    x, values = (torch.randn(n, 21).mul(50).abs().to(KINDS[dtype]) for n in (30, 1500))
    assert_same_bits(sums, "add", x, values)
    assert_same_bits(largest, "max", x, values)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_extrema_of_halves(dtype: str) -> None:
    """A NaN stays one."""
    (largest,) = build(rows("max", dtype))
    x, values = (torch.randn(n, 21).to(KINDS[dtype]) for n in (30, 1500))
    assert_same_bits(largest, "max", x, values)
    values[700, 5] = math.nan
    index = torch.arange(1500) // 50
    assert run(largest, x, values, index)[14, 5].isnan()


def test_values() -> None:
    """Against a scatter of PyTorch's."""
    (kernel,) = build(rows("add"))
    x, values = torch.randn(40, 33), torch.randn(3000, 33)
    for index in ascending(40, 3000):
        expected = x.double().index_add(0, index, values.double()).float()
        torch.testing.assert_close(run(kernel, x, values, index), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", [-1, 40])
def test_errors(bad: int) -> None:
    """An index out of range is none of an ascending row, and reported as ever."""
    (kernel,) = build(rows("add"))
    index = torch.arange(2000) // 50
    index[0 if bad < 0 else -1] = bad
    x, out, slot = torch.zeros(40, 8), torch.empty(40, 8), torch.zeros(1, dtype=torch.int64)
    kernel(x, torch.ones(2000, 8), index, out, 2000, 8, 40, 1, slot)
    assert slot.item() == 1


def test_where_it_is_none() -> None:
    """Where values replace, the last one stays: nothing is combined. Where the index differs along a row, points of
    one row are not next to each other. Where a value is computed of the checked index, each point checks it."""
    assert "_rows(" in emit_cpu(rows("add").kernel())
    assert "_rows(" not in emit_cpu(rows("set").kernel())
    b = Builder("own_indices", [P, W], [0], symbols=4)
    x, values, index = (b.arg(kind, [P, W]) for kind in ("f32", "f32", "i64"))
    out = b.arg("f32", [R, W], output=True)
    at = [_checked(b, index, D0 * W + D1), b.add("index", dtype="index", address=D1)]
    _scatter(b, "add", "f32", b.load(values, D0 * W + D1), at, x, out)
    assert "_rows(" not in emit_cpu(b.kernel())
    b = Builder("values_of_the_index", [P, W], [0], symbols=4)
    x, index, out = b.arg("i64", [R, W]), b.arg("i64", [P]), b.arg("i64", [R, W], output=True)
    at = [_checked(b, index, D0), b.add("index", dtype="index", address=D1)]
    _scatter(b, "add", "i64", b.add("arith.index_cast", at[0], dtype="i64"), at, x, out)
    assert "_rows(" not in emit_cpu(b.kernel())


def test_a_further_index_of_one_element() -> None:
    """What it is at a row is read from memory, not counted: such scatters have the usual form."""

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.unsqueeze(0)
        return y[torch.arange(y.shape[0])[:, None], torch.arange(y.shape[1])]

    compiled = symshape.compile(run)
    for n in (2, 1500, 1, 0):
        x = torch.randn(n, 3, requires_grad=True)
        weights = torch.randn(1, n, 3)
        (found,) = torch.autograd.grad((compiled(x) * weights).sum(), x)
        torch.testing.assert_close(found, weights[0])
