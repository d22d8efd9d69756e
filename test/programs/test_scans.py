"""Scans (cumsum, cumprod, cummax, cummin, logcumsumexp): kernels with what is around them, against eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan

import symshape
from symshape.tools.measure import tensors_of

Tensor = torch.Tensor
SIZES = [(5, 7), (1, 9), (9, 1), (33, 70), (4, 0), (0, 4), (2, 1000), (1000, 3), (17, 129)]
# Of each: kernels over all graphs.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "rows": (lambda x: x.cumsum(-1), 1),
    "columns": (lambda x: x.cumsum(0), 1),
    "products": (lambda x: (x * 0.1 + 1).cumprod(1) * 2, 1),
    "between_pointwise": (lambda x: (x.exp().cumsum(-1) * 2).sqrt(), 1),
    "two_in_a_row": (lambda x: (x.abs().cumsum(-1) + x.mul(0.01).exp().cumprod(-1)).cumsum(-1), 1),
    "along_both": (lambda x: x.cumsum(-1) + x.cumsum(0), 2),
    "after_softmax": (lambda x: x.softmax(-1).cumsum(-1), 2),
    "before_a_sum": (lambda x: x.cumsum(-1).sum(-1), 2),
    "with_a_row_value": (lambda x: (x - x[:, :1]).cumsum(-1) if x.shape[1] else x, 1),
    "backwards": (lambda x: x.flip(1).cumsum(1).flip(1), 2),
    "transposed": (lambda x: x.t().cumsum(0), 1),
    "middle": (lambda x: x[:, :, None].expand(-1, -1, 3).cumsum(1), 1),
    "logarithms": (lambda x: x.logcumsumexp(-1), 1),
    "logarithms_of_columns": (lambda x: x.logcumsumexp(0), 1),
    "of_bools": (lambda x: (x > 0).cumsum(-1), 1),
    "of_bytes": (lambda x: (x * 20).to(torch.uint8).cumsum(0, dtype=torch.int32), 1),
    "of_halves": (lambda x: x.to(torch.bfloat16).cumsum(0), 1),
    "of_small_floats": (lambda x: x.to(torch.float16).cumprod(-1), 1),
    "of_doubles": (lambda x: x.double().cumsum(-1), 1),
    "positions_in_groups": (lambda x: torch.where(x > 0, (x > 0).cumsum(-1) - 1, -1), 1),
}
LONG = {"products", "transposed", "middle", "of_bytes", "of_small_floats", "of_doubles", "backwards", "before_a_sum"}
NAMES = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in PROGRAMS]


def _check(compiled: Any, fn: Callable[..., Any], x: Tensor) -> None:
    got, expected = tensors_of(compiled(x)), tensors_of(fn(x))
    assert [t.stride() for t in got] == [t.stride() for t in expected] or 0 in x.shape or 1 in x.shape
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_equals_eager_in_one_graph(name: str) -> None:
    fn, kernels = PROGRAMS[name]
    report = symshape.explain(fn, torch.randn(SIZES[0]))
    for size in SIZES:
        _check(report.run, fn, torch.randn(size))
    totals = report.totals()
    if name != "with_a_row_value":  # which asks for a size
        assert totals["graphs"] == 1
        assert totals["kernels"] == kernels
    assert totals["library_calls"] == totals["fallbacks"] == 0


@pytest.mark.parametrize("find", [torch.cummax, torch.cummin])
@pytest.mark.parametrize("dim", [0, 1])
def test_extrema_and_where_they_are(find: Callable[..., Any], dim: int) -> None:
    """Of equal values the last is named, and NaN is above and below all."""

    def fn(x: Tensor) -> Any:
        return find(x, dim), find((x * 3).int(), dim), find((x * 30).to(torch.uint8), dim)

    compiled = symshape.compile(fn)
    for size in SIZES:
        x = torch.randn(size).mul(3).round()
        _check(compiled, fn, x)
        if x.numel() > 10:
            x.view(-1)[:: x.numel() // 5] = torch.nan
            x.view(-1)[1 :: x.numel() // 4] = -torch.inf
            got, expected = compiled(x)[0], fn(x)[0]
            assert torch.equal(got.indices, expected.indices)
            torch.testing.assert_close(got.values, expected.values, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_extrema_of_rows_that_rise_stay_or_do_both(dtype: torch.dtype) -> None:
    """A vector of points of which none, each or some is the largest so far."""

    def fn(x: Tensor) -> Any:
        return x.cummax(1), x.cummin(1), x.cummin(1).values + 1, x[0].cummax(0)

    compiled = symshape.compile(fn)
    for size in (1, 15, 16, 17, 100):
        ramp, noise = torch.arange(size) * 2.0, torch.randint(0, 9, (size,))
        rows = torch.stack([ramp, ramp.flip(0), torch.full((size,), 3.0), ramp + noise, noise, ramp // 24]).to(dtype)
        _check(compiled, fn, rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_extrema_of_points_that_are_apart(dtype: torch.dtype) -> None:
    """Vectors of points are gathered, of several rows by turns; other numbers of rows and points are left over."""

    def fn(x: Tensor) -> Any:
        turned, steps = x.t(), x[:, ::2]
        return turned.cummax(1), turned.cummin(1), steps.cummin(1), x[:, 0].cummax(0), x.t()[None].mul(2).cummax(2)

    compiled = symshape.compile(fn)
    for size in ((1, 1), (5, 4), (16, 3), (0, 4), (4, 1), (17, 9), (100, 33), (33, 100)):
        x = torch.randn(size).mul(3).round()
        x = x if dtype.is_floating_point else x.abs()
        for rows in (x, x + torch.arange(size[0])[:, None] // 3):
            rows = rows.to(dtype)
            _check(compiled, fn, rows)
            _check(compiled, fn, rows.t().contiguous().t())
        if dtype.is_floating_point and x.numel() > 10:
            x.view(-1)[:: x.numel() // 5] = torch.nan
            for one, other in zip(tensors_of(compiled(x.to(dtype))), tensors_of(fn(x.to(dtype))), strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_scans_from_the_end(dtype: torch.dtype) -> None:
    """Vectors are turned round, of points and of neighbouring rows; what is left of a vector too."""

    def fn(x: Tensor) -> Any:
        turned = x.flip(1), x.flip(0, 1), x.flip(0)
        return [y.cumsum(dim) for y in turned for dim in (0, 1)], (x.flip(1) * 2).cumsum(1), x.flip(1)[:, 1:].cumsum(1)

    compiled = symshape.compile(fn)
    for size in ((1, 1), (5, 4), (0, 4), (4, 0), (4, 16), (17, 33), (70, 31), (8, 1000)):
        _check(compiled, fn, torch.randn(size).mul(3).to(dtype))


def test_scans_of_integers_wrap() -> None:
    """Points of a vector are combined in other brackets, which no integer shows."""

    def fn(x: Tensor) -> Any:
        return x.cumsum(1), x.cumprod(1), x.cumsum(1).cumprod(0), (x > 0).cumsum(1)

    compiled = symshape.compile(fn)
    for size in ((1, 1), (3, 16), (2, 31), (5, 100)):
        got, expected = compiled(x := torch.randint(-(2**62), 2**62, size)), fn(x)
        assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def test_carried_values_of_several_kinds() -> None:
    """A sum of floats is one point after the other; counts and extrema beside it, before it and behind it are not."""

    def fn(x: Tensor) -> Any:
        counts = (x > 0).cumsum(1)
        some = torch.where(counts > 2, x, 0).cumsum(1)
        return counts, some, (some > 1).cumsum(1), x.exp().cumsum(1), (x == 0) & (counts == 1)

    report = symshape.explain(fn, torch.randn(SIZES[0]))
    assert report.totals()["kernels"] == report.totals()["graphs"] == 1
    for size in SIZES:
        _check(report.run, fn, torch.randn(size).mul(2).round().div(2))


def test_a_loop_whose_values_depend_on_each_other() -> None:
    """Two that need each other, one that needs these, and one that they need."""

    def step(all_: tuple[Tensor, ...], one: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        first, second, largest, count = all_
        later = count + (one > 0).long()
        third = first * 0.5 + second * 0.25 + one + later
        fourth = second * 0.5 - first * 0.25
        return (third, fourth, torch.maximum(largest, third), later), third + largest

    def start(x: Tensor) -> tuple[Tensor, ...]:
        zeros = torch.zeros_like(x[0])
        return zeros, zeros + 1, zeros - 1, zeros.long()

    def expected(x: Tensor) -> Any:
        current, found = start(x), []
        for one in x:
            current, y = step(current, one)
            found.append(y)
        return *current, torch.stack(found)

    compiled = symshape.compile(lambda x: scan(step, start(x), x, dim=0))
    for size in ((1,), (16,), (50,), (67,), (16, 1), (33, 5), (5, 33)):
        x = torch.randn(size)
        torch.testing.assert_close(tensors_of(compiled(x)), tensors_of(expected(x)))


def test_a_loop_that_chooses_or_adds() -> None:
    """`scan` in kernels: what is carried is kept where a condition holds, is combined with itself, or both."""

    def fn(x: Tensor) -> Any:
        def keep(best: Tensor, one: Tensor) -> tuple[Tensor, Tensor]:
            found = torch.where(one < best * 0.5 + 1, best, one)
            return found, found - best

        def count(pair: tuple[Tensor, Tensor], one: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            total, last = pair[0] + one, torch.maximum(pair[1], pair[0])
            return (total, last), total * 2 + last

        whole = (x * 10).long()
        start = torch.zeros_like(whole[0]), torch.zeros_like(whole[0])
        return scan(keep, torch.zeros_like(x[0]), x, dim=0), scan(count, start, whole, dim=0)

    def expected(x: Tensor) -> Any:
        best, total, last, kept, counted = torch.zeros(()), torch.zeros((), dtype=torch.long), None, [], []
        last = total
        for one in x:
            found = torch.where(one < best * 0.5 + 1, best, one)
            kept.append(found - best)
            best = found
        for one in (x * 10).long():
            total, last = total + one, torch.maximum(last, total)
            counted.append(total * 2 + last)
        return best, torch.stack(kept), total, last, torch.stack(counted)

    compiled = symshape.compile(fn)
    for size in (1, 16, 50, 67):
        x = torch.randn(size).mul(4)
        for one, other in zip(tensors_of(compiled(x)), tensors_of(expected(x)), strict=True):
            torch.testing.assert_close(one, other)


def test_rows_by_turns() -> None:
    """Rows of sums are computed four at a time, and those that are left one by one."""

    def fn(x: Tensor, y: Tensor) -> Any:
        return (x * y[:, None]).cumsum(-1) + y[:, None], x.double().cumprod(1), x[None].expand(3, -1, -1).cumsum(2)

    compiled = symshape.compile(fn)
    for rows in (1, 3, 4, 5, 8, 11):
        for length in (1, 16, 37):
            inputs = torch.randn(rows, length), torch.randn(rows)
            for one, other in zip(compiled(*inputs), fn(*inputs), strict=True):
                torch.testing.assert_close(one, other)


def test_extremum_of_what_is_least() -> None:
    fn = symshape.compile(lambda x: (x.cummax(0), x.cummin(0)))
    for value in (torch.inf, -torch.inf):
        x = torch.full((6,), value)
        assert [t.tolist() for t in tensors_of(fn(x))] == [t.tolist() for t in (*x.cummax(0), *x.cummin(0))]


def test_logarithms_of_what_has_no_end() -> None:
    fn = symshape.compile(lambda x: x.logcumsumexp(-1))
    x = torch.tensor([[-torch.inf, -torch.inf, 1, 2], [3, torch.inf, 1, 2], [torch.inf, -torch.inf, 1, torch.nan]])
    torch.testing.assert_close(fn(x), x.logcumsumexp(-1), equal_nan=True)


def test_a_long_step_over_rows_apart() -> None:
    """Rows are gathered: whole vectors of them, some, and few, which are taken one by one."""
    fn = symshape.compile(lambda x: x.logcumsumexp(-1))
    for size in ((3, 40), (8, 40), (9, 41), (24, 1), (2, 1000)):
        x = torch.randn(size)
        torch.testing.assert_close(fn(x), x.logcumsumexp(-1))


def test_gradients() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x.cumsum(-1).sin() * x.logcumsumexp(0) + x.cumprod(1)).sum() + x.cummax(1).values.cos().sum()

    compiled = symshape.compile(fn)
    for size in ((5, 7), (1, 3), (13, 11)):
        x = torch.randn(size, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x), x)
        (expected,) = torch.autograd.grad(fn(x), x)
        torch.testing.assert_close(got, expected)


def test_threads_change_no_bit() -> None:
    fn = symshape.compile(lambda x: (x.cumsum(0), x.cumsum(1), x.logcumsumexp(1)))
    x = torch.randn(700, 600)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = fn(x)
        torch.set_num_threads(2)
        assert all(torch.equal(a, b) for a, b in zip(alone, fn(x), strict=True))
    finally:
        torch.set_num_threads(before)


def test_report_of_the_kernel() -> None:
    (graph,) = symshape.explain(lambda x: x.exp().cumsum(0), torch.randn(4, 6)).graphs
    (kernel,) = graph.kernels
    assert kernel.kind == "scan" and [choice.name for choice in kernel.choices] == ["scan"]
    with pytest.raises(symshape.SymshapeError, match="no Triton code for scans"):
        _ = kernel.triton_source


def test_without_dims_and_other_types() -> None:
    fn = symshape.compile(lambda x, z: (x.cumsum(0), x.cummax(0), z.cumsum(0)))
    x, z = torch.tensor(3.0), torch.randn(5, dtype=torch.complex64)
    for one, other in zip(tensors_of(fn(x, z)), tensors_of((x.cumsum(0), x.cummax(0), z.cumsum(0))), strict=True):
        torch.testing.assert_close(one, other)
