"""Kernels in every form that a launch can have: element types, 64-bit addresses, addresses that divide by 16 or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpu_machine import Machine, same
from kernel_text import KernelText
from triton_cases import S0, S1, S2, concatenate, emit, gather, layer_norm, loops, mixed, reduction, softmax, transpose

import symshape
from symshape.codegen.variants import Variant
from symshape.dialects.plans import SPLIT
from symshape.errors import KernelError
from symshape.prover.numbers.condition import TRUE, all_of, at_least, equals
from symshape.prover.numbers.expr import Expr
from symshape.runtime.triton.launch import load_triton

FORMS = {
    v.name: v
    for v in (
        Variant("persistent", "persistent", TRUE, 4, rblock=128),
        Variant("persistent_wide", "persistent", TRUE, 1, rblock=128, index_bits=64),
        Variant("looped", "looped", TRUE, 2, rblock=32),
        Variant("looped_wide", "looped", TRUE, 1, rblock=64, num_warps=8, index_bits=64),
        Variant("split", "split", TRUE, 2, 4, rblock=32, splits=Expr.const(3)),
        Variant("split_wide", "split", TRUE, 4, 4, rblock=32, splits=Expr.const(2), index_bits=64),
        Variant("split_by_processors", "split", TRUE, 1, 4, rblock=32, splits=Expr.symbol("processors")),
        Variant("one_launch", "split", TRUE, 2, 4, rblock=32, splits=Expr.const(3), one_launch=True),
        Variant("one_launch_wide", "split_persistent", TRUE, 1, 4, rblock=16, index_bits=64, one_launch=True),
    )
}
SHAPES = ((1, 1), (3, 101), (0, 3))
LARGE = ((5, 128), (1000, 127), (3, 1_000_003), (10_007, 64))  # on a GPU; the third has no persistent form
EACH = pytest.mark.parametrize("form", FORMS)


def shapes(machine: Machine, variant: Variant) -> list[tuple[int, int]]:
    """Those that a variant may be run at."""
    every = machine.pick(SHAPES, SHAPES + LARGE)
    return [(n, m) for n, m in every if variant.form != "persistent" or m <= variant.rblock]


def run(machine: Machine, kernel: KernelText, *variants: Variant) -> Callable[..., None]:
    """The launcher. Interpreted, few parts are enough where the number of processors decides."""
    return load_triton(emit(kernel, variants), machine.pick(3, None))


def nothing_yet(machine: Machine, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(sizes, 77, dtype=dtype, device=machine.device)


@pytest.mark.sample(3)
@EACH
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_softmax(machine: Machine, form: str, dtype: str) -> None:
    launch = run(machine, softmax(dtype=dtype), FORMS[form])
    type_ = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    for rows, columns in shapes(machine, FORMS[form]):
        x = (torch.randn(rows, columns, device=machine.device) * 10).to(type_)
        out = nothing_yet(machine, rows, columns, dtype=type_)
        launch(x, out, rows, columns)
        same(out, torch.softmax(x, 1))


@EACH
def test_layer_norm(machine: Machine, form: str) -> None:
    """Two dependent reductions: of a mean far from 0 no digits are lost."""
    launch = run(machine, layer_norm(), FORMS[form])
    for rows, columns in shapes(machine, FORMS[form]):
        x, w = (torch.randn(*sizes, device=machine.device) for sizes in ((rows, columns), (columns,)))
        x += 100.0
        out, inverse = nothing_yet(machine, rows, columns), nothing_yet(machine, rows)
        launch(x, w, out, inverse, rows, columns)
        wide = x.double()
        same(inverse, (wide.var(1, correction=0) + 1e-5).rsqrt().float(), rtol=1e-4)
        same(out, torch.layer_norm(wide, [columns], w.double()).float(), rtol=1e-3, atol=2e-3)


REDUCED: dict[str, tuple[str, Callable[[torch.Tensor], Any]]] = {
    "add f32": ("f32", lambda x: x.sum(1)),
    "add f64": ("f64", lambda x: x.sum(1)),
    "add i64": ("i64", lambda x: x.sum(1)),
    "mul i64": ("i64", lambda x: x.prod(1)),
    "max f32": ("f32", lambda x: x.amax(1)),
    "min i64": ("i64", lambda x: x.amin(1)),
    "argmax f32": ("f32", lambda x: (x.amax(1), x.argmax(1))),
    "argmin i64": ("i64", lambda x: (x.amin(1), torch.min(x, 1).indices)),
    "or i1": ("i1", lambda x: x.any(1)),
    "and i1": ("i1", lambda x: x.all(1)),
}
_TYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i1": torch.bool}


def values(machine: Machine, dtype: str, rows: int, columns: int) -> torch.Tensor:
    """No two integers of a row are equal but for ones; all bools of some rows are equal."""
    if dtype == "i1":
        given = torch.rand(rows, columns) > torch.tensor([0.5, 0.0, 1.0]).repeat(rows)[:rows, None]
    elif dtype == "i64":
        given = torch.arange(rows * columns).view(rows, columns) % 101 - 50
        given = torch.where(given.abs() > 8, torch.ones_like(given), given + (given == 0))
    else:
        given = torch.rand(rows, columns) + 0.5
    return given.to(device=machine.device, dtype=_TYPES[dtype])


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", ["looped_wide", "split_by_processors", "one_launch_wide"])
@pytest.mark.parametrize("column", [False, pytest.param(True, marks=pytest.mark.long)], ids=["rows", "columns"])
@pytest.mark.parametrize("name", REDUCED)
def test_reductions(machine: Machine, name: str, column: bool, form: str) -> None:
    dtype, exact = REDUCED[name]
    launch = run(machine, reduction(name.split()[0], dtype, column), FORMS[form])
    for rows, columns in shapes(machine, FORMS[form]):
        x = values(machine, dtype, rows, columns)
        if rows == 0 and name.startswith(("arg", "max", "min")):
            continue
        expected = exact(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        outs = [nothing_yet(machine, rows, dtype=t.dtype) for t in expected]
        launch(x.t().contiguous() if column else x, *outs, rows, columns)
        if name.startswith("argmin"):  # which of several is first: torch.min does not say
            expected = (expected[0], (x == expected[0][:, None]).int().argmax(1))
        for actual, wanted in zip(outs, expected, strict=True):
            same(actual, wanted, rtol=1e-5 if dtype == "f32" else 1e-12)


FLAT = {
    "flat": Variant("flat", "pointwise", TRUE, 64, num_warps=2),
    "flat_wide": Variant("flat", "pointwise", TRUE, 128, num_warps=4, index_bits=64),
    "tile": Variant("tile", "tile", TRUE, 16, yblock=8, dims=("d0", "d1")),
    "tile_wide": Variant("tile", "tile", TRUE, 32, yblock=32, num_warps=8, dims=("d0", "d1"), index_bits=64),
}
PLANES = ((1, 1), (19, 33), (0, 4), (4, 0))
LARGE_PLANES = ((7, 16), (1009, 2003), (3, 1_000_003))


@pytest.mark.parametrize("form", FLAT)
def test_transpose(machine: Machine, form: str) -> None:
    launch = run(machine, transpose(), FLAT[form])
    for rows, columns in machine.pick(PLANES, PLANES + LARGE_PLANES):
        x, y = torch.randn(columns, rows, device=machine.device), torch.randn(columns, device=machine.device)
        out = nothing_yet(machine, rows, columns)
        launch(x, y, out, rows, columns)
        same(out, torch.empty_like(out).copy_(x.t() + y))


@pytest.mark.parametrize("form", FLAT)
def test_types_of_1_2_and_4_bytes_in_one_kernel(machine: Machine, form: str) -> None:
    launch = run(machine, mixed(), FLAT[form])
    for rows, columns in machine.pick(PLANES, PLANES + LARGE_PLANES):
        x, weight = torch.randn(rows, columns), torch.randn(columns)
        y, flags = torch.randn(rows, columns).bfloat16(), torch.rand(rows, columns) > 0.5
        x, y, flags, weight = machine.put((x, y, flags, weight))
        half, single = nothing_yet(machine, rows, columns, dtype=torch.bfloat16), nothing_yet(machine, rows, columns)
        launch(x, y, flags, weight, half, single, rows, columns)
        expected = torch.where(flags, (x + y.float()) * weight, y.float())
        same((half, single), (expected.bfloat16(), -expected))


@pytest.mark.parametrize("bits", [32, 64])
def test_a_tile_of_three_dims(machine: Machine, bits: int) -> None:
    k = KernelText("batch", 3, [(S0, "p"), (S1, "p"), (S2, "p")])
    x = k.arg("f32", [S0, S2, S1])
    out = k.arg("f32", [S0, S1, S2], output=True)
    k.store(k.view(x, "(d0, d1, d2) -> (d0, d2, d1)"), out, "(d0, d1, d2) -> (d0, d1, d2)")
    launch = run(machine, k, Variant("tile", "tile", TRUE, 16, yblock=8, dims=("d1", "d2"), index_bits=bits))
    for sizes in ((1, 1, 1), (3, 9, 17), machine.pick((2, 8, 16), (200, 99, 101))):
        a = torch.randn(sizes[0], sizes[2], sizes[1], device=machine.device)
        c = nothing_yet(machine, *sizes)
        launch(a, c, *sizes)
        same(c, a.transpose(1, 2).contiguous())


def test_loads_under_masks_of_sizes(machine: Machine) -> None:
    """A concatenation: what lies beyond an operand is not read."""
    launch = run(machine, concatenate(), FLAT["flat"])
    for first, second, rows in ((1, 1, 1), (5, 0, 3), (0, 5, 3), (31, 33, 4), machine.pick((8, 9, 2), (1009, 513, 77))):
        x, y = (torch.randn(rows, size, device=machine.device) for size in (first, second))
        out = nothing_yet(machine, rows, first + second)
        launch(x, y, out, first, second, rows)
        same(out, torch.cat([x, y], 1))


@pytest.mark.parametrize("form", ["flat", "flat_wide", "tile"])
def test_an_index_out_of_range_is_reported(machine: Machine, form: str) -> None:
    """In host memory that the kernel writes to; nothing is read there."""
    launch = run(machine, gather(), FLAT[form])
    table = torch.randn(10, 16, device=machine.device).bfloat16()
    slot = torch.zeros(1, dtype=torch.int64, pin_memory=machine.is_gpu)
    for last, code in ((7, 0), (10, 1), (-1, 1)):
        slot.zero_()
        index = torch.tensor([3, 0, 9, 3, last], device=machine.device)
        out = nothing_yet(machine, 5, 16)
        launch(index, table, out, 5, 10, slot)
        if machine.is_gpu:
            torch.cuda.synchronize()
        assert slot.item() == code
        same(out[:4], table.float()[index[:4]])


def test_an_integer_that_a_gpu_would_cut_off(machine: Machine) -> None:
    """Interpreted kernels have the types of their arguments too: what is addressed with 32 bits takes no more."""
    if machine.is_gpu:
        pytest.skip("the interpreter's check")
    launch = load_triton(emit(softmax(), [Variant("persistent", "persistent", TRUE, 4, rblock=128)]))
    x = torch.ones(2, 3)
    with pytest.raises(KernelError, match="argument 3 is 4294967299: a GPU would take its last 32 bits"):
        launch(x, torch.empty(2, 3), 2, 3 + (1 << 32))


def test_addresses_choose_the_variant(machine: Machine) -> None:
    """Wide accesses only where all addresses divide by 16; a view that begins in between is computed all the same."""
    addresses = [Expr.symbol(f"address{i}") for i in range(2)]
    aligned = all_of(*(equals(e % 16, 0) for e in (*addresses, S1)))
    names = ("in0", "out0", "s1", "rnumel")
    variants = [
        Variant("wide", "persistent", all_of(at_least(64, S1), aligned), 4, rblock=64, aligned=names),
        Variant("wide_rows", "looped", aligned, 1, rblock=64, aligned=names),
        Variant("narrow", "split", TRUE, 1, 4, rblock=16, splits=Expr.const(2)),
    ]
    launch = run(machine, softmax(), *variants)
    for rows, columns in ((1, 16), (2, 80), (2, 17)):
        memory = torch.randn(rows * columns + 4, device=machine.device)
        room = torch.empty(rows * columns + 4, device=machine.device)
        for offset in (0, 1, 4):
            x = memory[offset : offset + rows * columns].view(rows, columns)
            out = room.fill_(torch.nan)[offset : offset + rows * columns].view(rows, columns)
            launch(x, out, rows, columns)
            same(out, torch.softmax(x, 1))


@pytest.mark.parametrize("form", ["looped", "split", "split_by_processors", "one_launch", "one_launch_wide"])
def test_a_launch_computes_the_same_bits_again(machine: Machine, form: str) -> None:
    launch = run(machine, softmax(), FORMS[form])
    x = torch.randn(3, machine.pick(130, 100_003), device=machine.device)
    outs = [nothing_yet(machine, *x.shape) for _ in range(2)]
    for out in outs:
        launch(x, out, *x.shape)
    assert torch.equal(*outs)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "argmax", "column"])
def test_long_rows_in_one_launch(machine: Machine, name: str) -> None:
    """Option one-launch of plan-reductions, at a size where rows are split."""
    fn: Callable[..., Any] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        "argmax": lambda x: x.argmax(-1),
        "column": lambda x: x.t().contiguous().sum(0),
    }[name]
    options = {"pass_options": {"plan-reductions": {"one-launch": True}}}
    compiled = machine.compile(fn, **options)
    for shape in ((2, 70), (3, 60_001), machine.pick((1, 100_003), (8, 1_048_576))):
        x = torch.randn(shape, device=machine.device)
        same(compiled(x), fn(x), rtol=1e-5, atol=1e-4 if name == "column" else 1e-5)
    if not machine.is_gpu:
        report = symshape.explain(fn, x, options={**machine.options, **options})
        split = [v for kernel in report.graphs[0].kernels for v in kernel.planned if v.form in SPLIT]
        assert split and all(v.one_launch for v in split)


def test_the_number_of_parts_follows_the_processors(machine: Machine) -> None:
    """A launch sees the device's own number; what is given in its place is used."""
    kernel, x = loops(reduction("add")), torch.rand(2, 300, device=machine.device)
    for processors in (None, 2):
        launch = load_triton(emit(kernel, [replace(FORMS["split_by_processors"], rblock=16)]), processors)
        out = nothing_yet(machine, 2)
        launch(x, out, 2, 300)
        same(out, x.sum(1))
