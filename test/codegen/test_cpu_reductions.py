"""CPU kernels with reductions from hand-built loop programs, against PyTorch eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loop_builder import D0, D1, D2, SYMBOLS, ZERO, Builder, build, cpu_target, layer_norm, reduction, softmax, threads

__all__ = ["cpu_target"]  # every test here runs once per target
SHORT_ROWS = ((40, 1), (50, 2), (1016, 3), (77, 4), (33, 8), (70, 16), (1000, 7))  # no longer than a vector, and many
FEW_VECTORS = ((16, 17), (15, 31), (33, 100), (35, 256), (16, 257))  # rows of a few vectors: many at a time, or not
SMALL_DIMS = ((77, 1), (515, 2), (70, 4), (1, 515))  # those with forms of their own; `SHORT_ROWS` too


def test_softmax_and_layer_norm() -> None:
    soft, norm, norm_half = build(softmax(), layer_norm(), layer_norm("bf16"))
    for n, m in ((0, 4), (1, 1), (3, 2), (5, 17), (64, 256), (3, 10_007), *SHORT_ROWS, *FEW_VECTORS):
        # Neighbours differ: the deviations of a short row of equal values are rounding errors, in eager too.
        x, w, c = torch.randn(n, m) / 4 + torch.arange(m) % 5, torch.randn(m), torch.randn(m)
        out, mean = torch.empty(n, m), torch.empty(n)
        soft(x, out, n, m)
        torch.testing.assert_close(out, torch.softmax(x, 1))
        norm(x, w, c, out, mean, n, m)
        torch.testing.assert_close(mean, x.mean(1))
        torch.testing.assert_close(out, torch.nn.functional.layer_norm(x, [m], w, c), rtol=1e-5, atol=1e-5)
        x = x.bfloat16()
        half = torch.empty(n, m, dtype=torch.bfloat16)
        norm_half(x, w, c, half, mean, n, m)
        expected = torch.nn.functional.layer_norm(x.float(), [m], w, c)
        torch.testing.assert_close(half.float(), expected, rtol=8e-3, atol=1e-3)


def test_softmax_special_values() -> None:
    (soft,) = build(softmax())
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, inf, 2.0], [nan, 1.0, 2.0], [-inf, 1.0, 2.0], [-inf, -inf, -inf]])
    for rows in (x, x.repeat(8, 12)):
        out = torch.empty_like(rows)
        soft(rows, out, *rows.shape)
        torch.testing.assert_close(out, torch.softmax(rows, 1), equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(axis: int) -> None:
    cases = [
        ("add", "f32", torch.float32),
        ("max", "f32", torch.float32),
        ("min", "f64", torch.float64),
        ("add", "i64", torch.int64),
        ("mul", "f64", torch.float64),
        ("or", "i1", torch.bool),
        ("and", "i1", torch.bool),
        ("max", "ui8", torch.uint8),
        ("min", "i32", torch.int32),
        ("max", "bf16", torch.bfloat16),
        ("add", "f16", torch.float16),
    ]
    apply = {
        "add": torch.sum,
        "max": torch.amax,
        "min": torch.amin,
        "mul": torch.prod,
        "or": torch.any,
        "and": torch.all,
    }
    functions = build(*(reduction(c, d, axis) for c, d, _ in cases))
    for function, (combiner, _, dtype) in zip(functions, cases):
        for n, m in ((1, 1), (3, 2), (17, 33), (100, 70), (3, 5000), (5000, 3), (33, 8), *SMALL_DIMS, *FEW_VECTORS):
            x = (torch.randn(n, m) * 2 + (combiner in ("or", "and"))).to(dtype)
            exact = x.double() if combiner == "add" and dtype.is_floating_point else x
            expected = apply[combiner](exact, axis).to(dtype)
            out = torch.empty_like(expected)
            function(x, out, n, m)
            tolerance = {"rtol": 1e-5, "atol": 1e-6 * max(n, m)} if dtype is torch.float32 else {}
            text = f"{combiner} {dtype} {n} {m}"
            torch.testing.assert_close(out, expected, msg=lambda m, text=text: f"{text}: {m}", **tolerance)


@pytest.mark.parametrize("axis", [0, 1])
def test_empty_reduction(axis: int) -> None:
    (function,) = build(reduction("add", "f32", axis))
    x = torch.empty((0, 5) if axis == 0 else (5, 0))
    out = torch.ones(5)
    function(x, out, *x.shape)
    assert torch.equal(out, torch.zeros(5))


@pytest.mark.parametrize("axis", [0, 1])
def test_arg_reductions(axis: int) -> None:
    functions = build(*(reduction(c, d, axis) for c in ("argmax", "argmin") for d in ("f32", "i64", "ui8")))
    cases = [(f, d) for f in (torch.max, torch.min) for d in (torch.float32, torch.int64, torch.uint8)]
    apply = {torch.max: torch.argmax, torch.min: torch.argmin}
    for function, (kind, dtype) in zip(functions, cases):
        for n, m in ((1, 1), (5, 3), (40, 100), (3, 5000), (70, 17), (70, 5), (5, 70), (70, 3), (515, 4), *FEW_VECTORS):
            for spread in (2, 1000):  # a small spread gives ties
                x = torch.randint(0, spread, (n, m)).to(dtype)
                if dtype is torch.float32 and n > 1:
                    x[1] = float("-inf") if kind is torch.max else float("inf")
                    x[2, m // 2 :] = float("nan")
                values = torch.empty(x.shape[1 - axis], dtype=dtype)
                indices = torch.empty(x.shape[1 - axis], dtype=torch.int64)
                function(x, values, indices, n, m)
                assert torch.equal(indices, _first(x, apply[kind], axis)), (kind, dtype, n, m)
                torch.testing.assert_close(values, kind(x, axis).values, equal_nan=True)


def _first(x: torch.Tensor, kind: Callable[..., torch.Tensor], axis: int) -> torch.Tensor:
    """The first of equal extrema; NaN first of all."""
    y = x.double() if kind is torch.argmax else -x.double()
    if y.isnan().any():
        y = torch.where(y.isnan(), 1e300, y.clamp(-1e200, 1e200))
    best = y.amax(axis, keepdim=True)
    return (y == best).int().argmax(axis)


def test_sum_of_all_is_accurate_and_deterministic() -> None:
    n = SYMBOLS[0]
    b = Builder("total", [n], [0], symbols=1)
    x, out = b.arg("f32", [n]), b.arg("f32", [], output=True)
    b.store(b.reduce(b.load(x, D0), "add"), out, ZERO, row=True)
    (function,) = build(b)
    for size in (1, 100, 10_000_000):
        values = torch.rand(size)
        first, second = torch.empty(()), torch.empty(())
        function(values, first, size)
        with threads(1):
            function(values, second, size)
        assert torch.equal(first, second)
        assert abs(first.double() / values.double().sum() - 1) < 1e-6


def test_thread_counts_agree_bitwise() -> None:
    functions = build(softmax(), reduction("add", "f32", 0), reduction("add", "f32", 1))
    for n, m in ((3, 50_000), (2000, 300), (100_000, 5), (5, 100_000)):
        x = torch.randn(n, m)
        for function, shape in zip(functions, ((n, m), (m,), (n,))):
            outs = [torch.empty(shape) for _ in range(3)]
            for out, count in zip(outs, (1, 2, 7)):
                with threads(count):
                    function(x, out, n, m)
            assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])


def test_reduction_over_two_of_three_dims() -> None:
    """Mean and variance over dims 0 and 2, in two passes, and a sum over dims 0 and 1."""
    n, m, p = SYMBOLS[:3]
    b = Builder("batch_norm", [n, m, p], [0, 2], symbols=3)
    x, out = b.arg("f32", [n, m, p]), b.arg("f32", [n, m, p], output=True)
    value = b.load(x, (D0 * m + D1) * p + D2)
    count = b.add("arith.sitofp", b.add("index", dtype="index", row=True, address=n * p), row=True)
    mean = b.add("arith.divf", b.reduce(value, "add"), count, row=True)
    centred = b.add("arith.subf", value, mean)
    variance = b.add("arith.divf", b.reduce(b.add("arith.mulf", centred, centred), "add"), count, row=True)
    scale = b.add("math.rsqrt", b.add("arith.addf", variance, b.constant(1e-5, row=True), row=True), row=True)
    b.store(b.add("arith.mulf", centred, scale), out, (D0 * m + D1) * p + D2)
    c = Builder("leading", [n, m, p], [0, 1], symbols=3)
    x, out = c.arg("f32", [n, m, p]), c.arg("f32", [p], output=True)
    c.store(c.reduce(c.load(x, (D0 * m + D1) * p + D2), "add"), out, D2, row=True)
    norm, leading = build(b, c)
    for shape in ((2, 3, 5), (4, 1, 300), (3, 7, 16), (40, 50, 60), (300, 2, 3), (3000, 20, 2)):
        x = torch.randn(shape)
        out = torch.empty(shape)
        norm(x, out, *shape)
        mean, variance = x.mean((0, 2), keepdim=True), x.var((0, 2), keepdim=True, correction=0)
        torch.testing.assert_close(out, (x - mean) / (variance + 1e-5).sqrt(), rtol=1e-4, atol=1e-5)
        total = torch.empty(shape[2])
        leading(x, total, *shape)
        torch.testing.assert_close(total, x.double().sum((0, 1)).float(), rtol=1e-4, atol=1e-4)


def test_split_reductions() -> None:
    """Few rows, many columns: chunks of a row on all threads, also argmax, max with NaN and columns."""
    functions = build(*(reduction(c, "f32", axis) for c in ("argmax", "max", "add") for axis in (0, 1)))
    x = torch.randn(3, 300_000)
    x[1, 299_000] = x[1, 200_000] = float("nan")
    x[2, 123_456] = x[2, 200_000] = 9.0
    for k, axis in enumerate((0, 1)):
        y = x.t().contiguous() if axis == 0 else x
        values, indices = torch.empty(3), torch.empty(3, dtype=torch.int64)
        functions[k](y, values, indices, *y.shape)
        assert indices.tolist() == [int(x[0].argmax()), 200_000, 123_456]
        functions[2 + k](y, values, *y.shape)
        torch.testing.assert_close(values, x.amax(1), equal_nan=True)
        sums = [torch.empty(3) for _ in range(2)]
        for out, count in zip(sums, (1, 2)):
            with threads(count):
                functions[4 + k](y, out, *y.shape)
        torch.testing.assert_close(sums[0], x.double().sum(1).float(), rtol=1e-4, atol=1e-3, equal_nan=True)
        assert torch.equal(sums[0].nan_to_num(), sums[1].nan_to_num())


@pytest.mark.parametrize("axis", [0, 1])
def test_nan_of_one_row_or_column(axis: int) -> None:
    """Full blocks of columns have a loop without masks; NaN goes to its own row or column, and to no other."""
    cases = [("min", "f32", torch.float32), ("max", "f64", torch.float64), ("max", "bf16", torch.bfloat16)]
    for function, (combiner, _, dtype) in zip(build(*(reduction(c, d, axis) for c, d, _ in cases)), cases):
        for n, m in ((1, 1), (3, 63), (9, 64), (9, 65), (70, 200), (200, 70)):
            for row, column in ((0, 0), (n // 2, m // 2), (n - 1, m - 1)):
                x = torch.randn(n, m).to(dtype)
                x[row, column] = float("nan")
                expected = (torch.amin if combiner == "min" else torch.amax)(x, axis)
                out = torch.empty_like(expected)
                function(x, out, n, m)
                assert out.isnan().sum() == 1
                torch.testing.assert_close(out, expected, equal_nan=True, rtol=0, atol=0)
