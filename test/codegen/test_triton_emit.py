"""Triton kernels against eager, under the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_text import KernelText
from triton_cases import (
    ADD,
    S0,
    S1,
    concatenate,
    emit,
    gather,
    layer_norm,
    loops,
    reduction,
    runner,
    softmax,
    transpose,
)

from symshape.errors import KernelError

pytestmark = pytest.mark.filterwarnings("ignore")
SHAPES = [(1, 1), (3, 17), (5, 64), (2, 257), (130, 7)]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def close(actual: torch.Tensor, expected: torch.Tensor, **tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


@pytest.mark.parametrize("rows,columns", [*SHAPES, (2, 5000), (0, 3)])
def test_softmax(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns)
    out = torch.full_like(x, torch.nan)
    runner(softmax())(x, out, rows, columns)
    close(out, torch.softmax(x, 1))


@pytest.mark.parametrize("variant", ["persistent", "looped", "looped_wide"])
def test_softmax_variants(variant: str) -> None:
    x = torch.randn(5, 100).bfloat16()
    x[1, 50] = torch.nan
    x[2, :] = -torch.inf
    x[3, 3] = torch.inf
    out = torch.empty_like(x)
    runner(softmax(dtype="bf16"), variant)(x, out, 5, 100)
    close(out, torch.softmax(x.float(), 1).bfloat16())


@pytest.mark.parametrize("variant", ["", "looped"])
@pytest.mark.parametrize("rows,columns", [(1, 1), (3, 17), (4, 300)])
def test_layer_norm(rows: int, columns: int, variant: str) -> None:
    x, w = torch.randn(rows, columns), torch.randn(columns)
    out, inverse = torch.empty_like(x), torch.empty(rows)
    runner(layer_norm(), variant)(x, w, out, inverse, rows, columns)
    close(out, torch.layer_norm(x, [columns], w), rtol=1e-5, atol=1e-5)
    close(inverse, (x.var(1, correction=0) + 1e-5).rsqrt())


@pytest.mark.parametrize("rows,columns", SHAPES)
def test_transpose_with_broadcast(rows: int, columns: int) -> None:
    x, y, out = torch.randn(columns, rows), torch.randn(columns), torch.empty(rows, columns)
    runner(transpose())(x, y, out, rows, columns)
    close(out, x.t() + y)


@pytest.mark.parametrize("left,right,rows", [(1, 1, 1), (3, 14, 5), (0, 4, 3), (7, 0, 2), (600, 700, 2)])
def test_masked_loads(left: int, right: int, rows: int) -> None:
    x, y, out = torch.randn(rows, left), torch.randn(rows, right), torch.empty(rows, left + right)
    runner(concatenate())(x, y, out, left, right, rows)
    close(out, torch.cat([x, y], 1))


def test_pointwise_over_blocks_and_wide_addresses() -> None:
    k = KernelText("add", 1, [(S0, "p")])
    x, y, out = k.arg("f32", [S0]), k.arg("f32", [S0]), k.arg("f32", [S0], output=True)
    k.store(k.generic([k.view(x, "(d0) -> (d0)"), k.view(y, "(d0) -> (d0)")], "f32", ADD), out, "(d0) -> (d0)")
    for variant, sizes in (("", (1, 255, 1001, 10_007)), ("large_wide", (1, 1025))):
        launch = runner(k, variant)
        for n in sizes:
            a, b, c = torch.randn(n), torch.randn(n), torch.empty(n)
            launch(a, b, c, n)
            close(c, a + b)


def test_scalar_kernel() -> None:
    k = KernelText("scalar", 0, [])
    x, y, out = k.arg("f32", []), k.arg("f32", []), k.arg("f32", [], output=True)
    k.store(k.generic([k.view(x, "() -> ()"), k.view(y, "() -> ()")], "f32", ADD), out, "() -> ()")
    a, b, c = torch.randn(()), torch.randn(()), torch.empty(())
    runner(k)(a, b, c)
    close(c, a + b)


def test_gather_reports_indices_out_of_range() -> None:
    table, index = torch.randn(10, 16).bfloat16(), torch.tensor([3, 0, 9, 3, 7])
    out, slot = torch.empty(5, 16), torch.zeros((), dtype=torch.int64)
    launch = runner(gather())
    launch(index, table, out, 5, 10, slot)
    assert slot == 0
    close(out, table.float()[index])
    for bad in (10, -1, 2**40):
        index[2] = bad
        slot.zero_()
        launch(index, table, out, 5, 10, slot)
        assert slot == 1
    slot.zero_()
    launch(index, table[:0], out, 5, 0, slot)  # nothing may be read
    assert slot == 1


REDUCTIONS: dict[str, Any] = {
    "add": lambda x: x.sum(1),
    "mul": lambda x: x.prod(1),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64, "i8": torch.int8}


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("combiner", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(combiner: str, dtype: str, column: bool) -> None:
    kernel = loops(reduction(combiner, dtype, column))
    for rows, columns, variant in ((1, 1, ""), (3, 17, ""), (3, 17, "looped")):
        shape = (columns, rows) if column else (rows, columns)
        x = torch.randn(shape) if dtype[0] == "f" else (torch.randn(shape) * 3).round()
        x = x.to(DTYPES[dtype])
        out = torch.empty(rows, dtype=DTYPES[dtype])
        runner(kernel, variant)(x, out, rows, columns)
        expected = REDUCTIONS[combiner](x.t() if column else x).to(DTYPES[dtype])
        close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", ["", "looped"])
def test_max_keeps_nan(variant: str) -> None:
    x, out = torch.randn(3, 40), torch.empty(3)
    x[1, 39] = torch.nan
    runner(reduction("max"), variant)(x, out, 3, 40)
    close(out, x.amax(1))


@pytest.mark.parametrize("variant", ["", "looped"])
@pytest.mark.parametrize("combiner", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f32", "i64", "i1"])
def test_arg_reductions(combiner: str, dtype: str, variant: str) -> None:
    kernel = loops(reduction(combiner, dtype))
    for rows, columns in ((1, 1), (6, 33)):
        x = (torch.randn(rows, columns) * 2).round()  # many ties
        if dtype == "f32" and columns > 1:
            x[1, 7] = x[1, 9] = torch.nan
            x[2, :] = -torch.inf
            x[3, :] = torch.inf
        x = x > 0 if dtype == "i1" else x.to(torch.int64) if dtype == "i64" else x
        value, at = torch.empty(rows, dtype=x.dtype), torch.empty(rows, dtype=torch.int64)
        runner(kernel, variant)(x, value, at, rows, columns)
        expected = getattr(x.int() if dtype == "i1" else x, combiner)(1)
        assert torch.equal(at, expected)
        close(value, x.gather(1, expected[:, None])[:, 0])


@pytest.mark.parametrize("variant", ["", "looped"])
def test_any_and_all(variant: str) -> None:
    x = torch.rand(9, 50) > torch.tensor([0.0, 1.0, 0.5]).repeat(3)[:, None]
    for combiner, expected in (("or", x.any(1)), ("and", x.all(1))):
        out = torch.empty(9, dtype=torch.bool)
        runner(reduction(combiner, "i1"), variant)(x, out, 9, 50)
        assert torch.equal(out, expected)


def test_reduction_over_several_dims_with_halves() -> None:
    k = KernelText("mean", 2, [(S0, "r"), (8, "p"), (S1, "r")])
    x, out = k.arg("bf16", [S0, 8, S1]), k.arg("bf16", [8], output=True)
    wide = k.generic([k.view(x, "(d0, d1, d2) -> (d0, d1, d2)")], "f32", "%r = arith.extf %a0 : bf16 to f32")
    half = k.generic([k.reduce(wide, "add")], "bf16", "%r = arith.truncf %a0 : f32 to bf16", row=True)
    k.store(half, out, "(d0) -> (d0)")
    for variant in ("", "looped"):
        a, c = torch.randn(5, 8, 33).bfloat16(), torch.empty(8, dtype=torch.bfloat16)
        runner(k, variant)(a, c, 5, 33)
        close(c, a.float().sum((0, 2)).bfloat16())


def test_full_reduction_and_broadcast_operand() -> None:
    """No parallel dim, and a reduced value that does not vary along the reduced dim."""
    k = KernelText("total", 1, [(S0, "r")])
    x, c, out = k.arg("f32", [S0]), k.arg("f32", []), k.arg("f32", [], output=True)
    total, count = k.reduce(k.view(x, "(d0) -> (d0)"), "add"), k.reduce(k.view(c, "(d0) -> ()"), "add")
    k.store(k.generic([total, count], "f32", ADD, row=True), out, "() -> ()")
    for n in (0, 1, 100, 5000):
        a, scalar, result = torch.randn(n), torch.tensor(2.0), torch.empty(())
        runner(k)(a, scalar, result, n)
        close(result, a.sum() + 2.0 * n, rtol=1e-4, atol=1e-4)


def test_floor_division_of_negative_addresses() -> None:
    """Values of index arithmetic keep Python's floor and 64 bits; // in Triton is towards zero."""
    k = KernelText("index", 1, [(S0, "p")])
    out = k.arg("i64", [S0], output=True)
    body = """%i = linalg.index 0 : index
    %j = affine.apply affine_map<(d0) -> ((d0 - 5) floordiv 2 + (d0 - 5) mod 3 + d0 * 3000000000)>(%i)
    %r = arith.index_cast %j : index to i64"""
    k.store(k.generic([], "i64", body), out, "(d0) -> (d0)")
    result, i = torch.empty(20, dtype=torch.int64), torch.arange(20)
    runner(k)(result, 20)
    assert torch.equal(result, (i - 5) // 2 + (i - 5) % 3 + i * 3000000000)


def test_interpreter_chosen_too_late_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(KernelError, match="was set after triton was imported"):
        runner(transpose())


def test_unsupported_is_an_error() -> None:
    k = KernelText("odd", 1, [(S0, "p")])
    x, out = k.arg("f32", [S0]), k.arg("f32", [S0], output=True)
    k.store(k.generic([k.view(x, "(d0) -> (d0)")], "f32", "%r = math.cbrt %a0 : f32"), out, "(d0) -> (d0)")
    with pytest.raises(KernelError, match="math.cbrt .*has no Triton code"):
        emit(k)
