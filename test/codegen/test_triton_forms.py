"""Each form of a kernel against eager at sizes around the edges of its blocks, under the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_text import KernelText
from triton_cases import (
    ADD,
    S0,
    S1,
    S2,
    emit,
    gather,
    layer_norm,
    loops,
    reduction,
    runner,
    softmax,
    transpose,
)

from symshape.codegen.triton.schedule import schedule
from symshape.codegen.variants import Variant
from symshape.prover.numbers.condition import TRUE, all_of, at_least, equals
from symshape.prover.numbers.expr import Expr

pytestmark = pytest.mark.filterwarnings("ignore")
PROCESSORS = Expr.symbol("processors")
POINTWISE = Variant("flat", "pointwise", TRUE, 32, num_warps=1)
TILE = Variant("tile", "tile", TRUE, 16, yblock=8, dims=("d0", "d1"))
PERSISTENT = Variant("persistent", "persistent", TRUE, 4, rblock=64)
HEADED = Variant("headed", "headed", TRUE, 2, rblock=32, yblock=32)
LOOPED = Variant("looped", "looped", TRUE, 2, rblock=16)
SPLIT = Variant("split", "split", TRUE, 2, 4, rblock=16, splits=Expr.const(3))
WIDE = Variant("split_wide", "split", TRUE, 4, 4, rblock=16, splits=Expr.const(2), index_bits=64)
ONE = Variant("one_launch", "split", TRUE, 2, 4, rblock=16, splits=Expr.const(3), one_launch=True)
HELD = Variant("held_one_launch", "split_persistent", TRUE, 2, 4, rblock=16, one_launch=True)
# Around a block of rows, a step of the reduced points, and the parts of a split; the interpreter is slow.
SHAPES = ((1, 1), (2, 2), (3, 15), (1, 16), (5, 17), (2, 47), (1, 48), (4, 64), (3, 101))
REDUCTIONS = pytest.mark.parametrize(
    "variant", [PERSISTENT, HEADED, LOOPED, SPLIT, WIDE, ONE, HELD], ids=lambda v: v.name
)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def close(actual: torch.Tensor, expected: torch.Tensor, **tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


def fitting(variant: Variant) -> list[tuple[int, int]]:
    """Shapes that a variant may be run at."""
    return [(n, m) for n, m in (*SHAPES, (3, 32), (5, 61)) if fits(variant, m)]


def fits(variant: Variant, points: int) -> bool:
    """Whether it may reduce so many points."""
    if variant.form == "headed":
        return variant.rblock <= points <= variant.rblock + variant.yblock
    return variant.form != "persistent" or points <= variant.rblock


@pytest.mark.sample(2)
@REDUCTIONS
def test_softmax(variant: Variant) -> None:
    launch = runner(softmax(), variant)
    for rows, columns in [*fitting(variant), *((n, m) for n, m in ((0, 5), (5, 0), (0, 40)) if fits(variant, m))]:
        x = torch.randn(rows, columns) * 30
        out = torch.full_like(x, torch.nan)
        launch(x, out, rows, columns)
        close(out, torch.softmax(x, 1))


@REDUCTIONS
def test_softmax_of_infinities(variant: Variant) -> None:
    x = torch.randn(7, 50)
    x[1, 30], x[3, 3], x[3, 40] = torch.nan, torch.inf, torch.inf
    x[2, :], x[4, :49], x[5, 1:] = -torch.inf, -torch.inf, -torch.inf
    x[6, 7] = 1e30
    out = torch.empty_like(x)
    runner(softmax(), variant)(x, out, 7, 50)
    close(out, torch.softmax(x, 1))


@pytest.mark.sample(2)
@REDUCTIONS
def test_what_is_the_same_all_over_a_row_is_reduced_once_more(variant: Variant) -> None:
    """sum(sum(x)) with no arithmetic in between."""
    k = KernelText("again", 2, [(S0, "p"), (S1, "r")])
    x, out = k.arg("f32", [S0, S1]), k.arg("f32", [S0], output=True)
    total = k.reduce(k.view(x, "(d0, d1) -> (d0, d1)"), "add")
    k.store(k.reduce(k.spread(total), "add"), out, "(d0) -> (d0)")
    launch = runner(k, variant)
    for rows, columns in fitting(variant):
        x, sums = torch.randn(rows, columns), torch.empty(rows)
        launch(x, sums, rows, columns)
        close(sums, x.sum(1) * columns, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(2)
@REDUCTIONS
def test_layer_norm(variant: Variant) -> None:
    launch = runner(layer_norm(), variant)
    for rows, columns in fitting(variant):
        x, w = torch.randn(rows, columns) + 100.0, torch.randn(columns)
        out, inverse = torch.empty_like(x), torch.empty(rows)
        launch(x, w, out, inverse, rows, columns)
        wide = x.double()
        close(inverse, (wide.var(1, correction=0) + 1e-5).rsqrt().float(), rtol=1e-4, atol=0.0)
        close(out, torch.layer_norm(wide, [columns], w.double()).float(), rtol=1e-3, atol=2e-3)


def test_passes_over_the_row() -> None:
    """Softmax and layer norm read a long row twice: once for both reductions, once for the output."""
    for text in (softmax(), softmax(dtype="bf16"), layer_norm()):
        plan = schedule(loops(text))
        assert [bool(one.body) for one in plan.sweeps] == [True, True]
        assert len(plan.online) == 1


RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x.sum(1),
    "mul": lambda x: x.prod(1),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "argmax": lambda x: (x.amax(1), x.argmax(1)),
    "argmin": lambda x: (x.amin(1), x.argmin(1)),
}


@pytest.mark.parametrize("column", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("combiner", RESULTS)
def test_reductions_of_two_blocks(combiner: str, column: bool) -> None:
    """The best element of an arg-reduction is in either block, or in both; then the first counts."""
    arg, whole = combiner.startswith("arg"), combiner in ("mul", "argmin")
    launch = runner(reduction(combiner, "i64" if whole else "f32", column), HEADED)
    for rows, columns in ((1, 32), (3, 33), (5, 64)):
        x = torch.randn(rows, columns)
        x = (x * 3).round() if arg or whole else x
        if combiner == "argmax" and rows > 1:
            x[0, 32], x[1, 30], x[2, 32] = torch.nan, 99.0, 99.0
        x = x.long() if whole else x
        outs = [torch.zeros(rows, dtype=t) for t in [x.dtype, torch.int64][: 1 + arg]]
        launch(x.t().contiguous() if column else x, *outs, rows, columns)
        expected = RESULTS[combiner](x)
        for actual, wanted in zip(outs, expected if arg else (expected,), strict=True):
            close(actual, wanted.to(actual.dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("column", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("combiner", RESULTS)
def test_split_reductions(combiner: str, column: bool) -> None:
    """Combined in a fixed order: bitwise equal between two runs, whatever the number of processors."""
    kernel = loops(reduction(combiner, "i64" if combiner in ("mul", "argmin") else "f32", column))
    for rows, columns, splits in ((1, 1, 3), (3, 97, 4), (3, 16, 1), (0, 3, 2)):
        launch = runner(kernel, Variant("split", "split", TRUE, 2, 4, rblock=16, splits=Expr.const(splits)))
        x = (torch.randn(rows, columns) * 2).round() if combiner.startswith("arg") else torch.randn(rows, columns)
        x = (x * 3).round().long() if combiner in ("mul", "argmin") else x
        if combiner == "argmax" and columns > 50:
            x[1, 40] = x[1, 90] = torch.nan
            x[2, :] = -torch.inf
        given = x.t().contiguous() if column else x
        runs = []
        for _ in range(2):
            outs = [torch.zeros(rows, dtype=t) for t in [x.dtype, torch.int64][: 1 + combiner.startswith("arg")]]
            launch(given, *outs, rows, columns)
            runs.append(outs)
        assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(*runs, strict=True))
        expected = RESULTS[combiner](x) if rows else tuple(outs)
        for actual, wanted in zip(outs, expected if isinstance(expected, tuple) else (expected,), strict=True):
            close(actual, wanted.to(actual.dtype), rtol=1e-5, atol=1e-5)


def test_split_of_bools_and_of_nothing() -> None:
    x = torch.rand(6, 50) > torch.tensor([0.0, 1.0, 0.5]).repeat(2)[:, None]
    for combiner, expected in (("or", x.any(1)), ("and", x.all(1))):
        out, launch = torch.empty(6, dtype=torch.bool), runner(reduction(combiner, "i1"), SPLIT)
        launch(x, out, 6, 50)
        assert torch.equal(out, expected)
        launch(x[:, :0], out, 6, 0)
        assert torch.equal(out, torch.full((6,), combiner == "and"))


def chained() -> KernelText:
    """Three reductions, each of which needs the one before, and stores of both levels: no two can share a pass."""
    k = KernelText("chained", 2, [(S0, "p"), (S1, "r")])
    x, out, tops = k.arg("f32", [S0, S1]), k.arg("f32", [S0, S1], output=True), k.arg("f32", [S0], output=True)
    v = k.view(x, "(d0, d1) -> (d0, d1)")
    top = k.reduce(v, "max")
    scaled = k.generic([v, top], "f32", "%r = arith.divf %a0, %a1 : f32")
    total = k.reduce(scaled, "add")
    shifted = k.generic([scaled, total], "f32", "%r = arith.subf %a0, %a1 : f32")
    least = k.reduce(shifted, "min")
    k.store(k.generic([shifted, least], "f32", "%r = arith.mulf %a0, %a1 : f32"), out, "(d0, d1) -> (d0, d1)")
    k.store(top, tops, "(d0) -> (d0)")
    return k


@pytest.mark.parametrize("variant", [HEADED, LOOPED, SPLIT], ids=lambda v: v.name)
def test_dependent_reductions(variant: Variant) -> None:
    launch = runner(chained(), variant)
    for rows, columns in fitting(variant):
        x = torch.rand(rows, columns) + 0.5
        out, tops = torch.empty_like(x), torch.empty(rows)
        launch(x, out, tops, rows, columns)
        top = x.amax(1, keepdim=True)
        scaled = x / top
        shifted = scaled - scaled.sum(1, keepdim=True)
        close(out, shifted * shifted.amin(1, keepdim=True), rtol=1e-5, atol=1e-4)
        close(tops, top[:, 0])


@pytest.mark.parametrize("variant", [POINTWISE, TILE], ids=lambda v: v.name)
def test_transpose(variant: Variant) -> None:
    launch = runner(transpose(), variant)
    for rows, columns in ((1, 1), (2, 15), (7, 16), (8, 17), (9, 31), (37, 3), (0, 4), (4, 0)):
        x, y, out = torch.randn(columns, rows), torch.randn(columns), torch.empty(rows, columns)
        launch(x, y, out, rows, columns)
        close(out, x.t() + y)


def test_tile_of_three_dims() -> None:
    """A batch of transposes: the third dim is one number in each program."""
    k = KernelText("batch", 3, [(S0, "p"), (S1, "p"), (S2, "p")])
    x, y = k.arg("f32", [S0, S2, S1]), k.arg("f32", [S0])
    out = k.arg("f32", [S0, S1, S2], output=True)
    loads = [k.view(x, "(d0, d1, d2) -> (d0, d2, d1)"), k.view(y, "(d0, d1, d2) -> (d0)")]
    k.store(k.generic(loads, "f32", ADD), out, "(d0, d1, d2) -> (d0, d1, d2)")
    launch = runner(k, Variant("tile", "tile", TRUE, 16, yblock=8, dims=("d1", "d2")))
    for sizes in ((1, 1, 1), (3, 9, 17), (2, 8, 16)):
        a, b = torch.randn(sizes[0], sizes[2], sizes[1]), torch.randn(sizes[0])
        c = torch.empty(sizes)
        launch(a, b, c, *sizes)
        close(c, a.transpose(1, 2) + b[:, None, None])


def test_gather_in_a_tile_reports_indices() -> None:
    table, index = torch.randn(10, 16).bfloat16(), torch.tensor([3, 0, 9, 3, 7])
    out, slot = torch.empty(5, 16), torch.zeros((), dtype=torch.int64)
    launch = runner(gather(), TILE)
    launch(index, table, out, 5, 10, slot)
    assert slot == 0
    close(out, table.float()[index])
    index[4] = 10
    launch(index, table, out, 5, 10, slot)
    assert slot == 1


def test_the_launcher_chooses() -> None:
    """By sizes, addresses and processors; what several conditions share is computed once."""
    from symshape.runtime.triton.launch import launcher_source, load_triton

    def choose(values: dict[str, int]) -> str:
        """The name of the variant whose condition is the first to hold, on 2 processors."""
        names = {"address0": 0, "address1": 0, "processors": 2} | values
        return next(v.name for v in kernel.variants if eval(v.condition, {"max": max, "min": min}, names))

    addresses = [Expr.symbol(f"address{i}") for i in range(2)]
    aligned = all_of(*(equals(e % 16, 0) for e in (*addresses, S1)))
    names = ("in0", "out0", "s1", "rnumel")
    kernel = emit(
        softmax(),
        [
            Variant("short", "persistent", all_of(at_least(16, S1), aligned), 4, rblock=16, aligned=names),
            Variant("rows", "looped", all_of(at_least(S0, PROCESSORS), aligned), 1, rblock=16, aligned=names),
            Variant("rest", "split", TRUE, 1, 4, rblock=16, splits=PROCESSORS),
        ],
    )
    assert choose({"s0": 1, "s1": 16}) == "short"
    assert choose({"s0": 2, "s1": 32}) == "rows"
    assert choose({"s0": 1, "s1": 32}) == "rest"
    assert choose({"s0": 1, "s1": 16, "address1": 4}) == "rest"
    assert launcher_source(kernel, addresses=True).count("& 15 == 0") == 1
    launch = load_triton(kernel, processors=2)
    for rows, columns in ((1, 16), (1, 15), (2, 32), (1, 32)):
        storage = torch.randn(rows * columns + 1)
        for x in (storage[:-1].view(rows, columns), storage[1:].view(rows, columns)):
            out = torch.empty(rows, columns)
            launch(x, out, rows, columns)
            close(out, torch.softmax(x, 1))
