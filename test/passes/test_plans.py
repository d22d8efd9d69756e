"""Plans of kernels: what variants compute, which is taken at which size, what facts and options leave of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_text import KernelText, context
from triton_cases import IDENTITY, S0, S1, mixed, reduction, softmax, total, transpose

from symshape.analysis.loops import LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.analysis.read_kernel import read_kernel
from symshape.codegen.triton.kernel import emit_triton
from symshape.codegen.variants import Variant, for_loops, read_variants
from symshape.dialects.plans import SPLIT
from symshape.passes.framework.manager import run_pipeline
from symshape.passes.plans.plan_reductions import PlanReductions
from symshape.passes.plans.variant_table import MOST_VARIANTS
from symshape.passes.stages import STAGES
from symshape.prover.numbers.condition import TRUE

ROOT = Path(__file__).parents[2]

PROCESSORS = 4


def plan(text: KernelText, disable: Sequence[str] = ()) -> tuple[LoopKernel, tuple[Variant, ...]]:
    from torch_mlir import ir

    with context(), ir.Location.unknown():
        module = ir.Module.parse(text.text())
        run_pipeline(module, ",".join(STAGES["planned"]), disable=disable)
        function = module.body.operations[0]
        kernel = normalise(read_kernel(function))
        return kernel, for_loops(read_variants(function), kernel)


def chosen(
    variants: Sequence[Variant], sizes: Sequence[int], address: int = 0, processors: int = PROCESSORS
) -> Variant:
    values = {f"s{i}": size for i, size in enumerate(sizes)} | {"processors": processors}
    values |= {f"address{i}": address for i in range(8)}
    return next(v for v in variants if v.condition.evaluate(values))


def pointwise() -> KernelText:
    k = KernelText("pointwise", 2, [(S0, "p"), (S1, "p")])
    x, out = k.arg("f32", [S0, S1]), k.arg("f32", [S0, S1], output=True)
    k.store(k.generic([k.view(x, IDENTITY)], "f32", "%r = math.exp %a0 : f32"), out, IDENTITY)
    return k


# Kernel, tensors for sizes, the result in eager, and sizes with the variant that is taken for aligned addresses.
CASES: dict[str, tuple[Any, Any, Any, dict[tuple[int, int], str]]] = {
    "softmax": (
        softmax,
        lambda n, m: [torch.randn(n, m)],
        lambda x: [torch.softmax(x, 1)],
        {
            (70, 2): "persistent2",
            (9, 5): "persistent8",
            (5, 32): "persistent32_aligned",
            (5, 31): "persistent32",
            (5, 112): "persistent128_aligned",
            (5, 33): "persistent128",
            (3, 160): "persistent256_aligned",
            (3, 161): "persistent256",
            (3, 512): "persistent512_aligned",
            (3, 257): "persistent512",
            (2, 1024): "persistent1024_aligned",
            (2, 1023): "persistent1024",
            (2, 1040): "headed1536_aligned",
            (2, 1025): "headed1536",
            (2, 2048): "headed2048_aligned",
            (2, 2047): "headed2048",
            (2, 3072): "headed3072_aligned",
            (2, 2049): "headed3072",
            (2, 4096): "headed4096_aligned",
            (2, 4095): "headed4096",
            (2, 6000): "headed6144_aligned",
            (2, 4097): "headed6144",
            (1, 8192): "headed8192_aligned",
            (1, 8191): "headed8192",
            (1, 8208): "headed10240_aligned",
            (1, 9973): "headed10240",
            (1, 12000): "headed12288_aligned",
            (1, 10241): "headed12288",
            (1, 16384): "headed16384_aligned",
            (1, 12289): "headed16384",
            (2, 16400): "looped_aligned",
            (2, 16387): "looped",
            (1, 50176): "split_persistent_aligned",
            (1, 50257): "split_persistent",
        },
    ),
    "sum": (
        lambda: reduction("add"),
        lambda n, m: [torch.randn(n, m)],
        lambda x: [x.sum(1)],
        {
            (70, 1): "persistent2",
            (70, 5): "persistent8",
            (5, 32): "persistent32_aligned",
            (5, 31): "persistent32",
            (9, 112): "persistent128_aligned",
            (9, 100): "persistent128",
            (9, 256): "persistent256_aligned",
            (9, 255): "persistent256",
            (9, 512): "persistent512_aligned",
            (9, 511): "persistent512",
            (3, 1008): "persistent1024_aligned",
            (3, 1009): "persistent1024",
            (2, 4096): "looped_aligned",
            (2, 4095): "looped",
            (2, 6000): "headed6144_aligned",
            (2, 4099): "headed6144",
            (2, 8192): "headed8192_aligned",
            (2, 8191): "headed8192",
            (2, 8208): "headed10240_aligned",
            (2, 9973): "headed10240",
            (2, 12000): "headed12288_aligned",
            (2, 12001): "headed12288",
            (2, 16384): "headed16384_aligned",
            (2, 16383): "headed16384",
            (1, 50176): "split_persistent_aligned",
            (1, 50257): "split_persistent",
        },
    ),
    "column": (
        lambda: reduction("max", column=True),
        lambda n, m: [torch.randn(m, n).t()],
        lambda x: [x.amax(1)],
        {
            (64, 3): "persistent4_aligned",
            (70, 3): "persistent4",
            (4096, 5): "columns_aligned",
            (4097, 21): "columns",
            (64, 5): "persistent16_aligned",
            (70, 5): "persistent16",
            (80, 60): "persistent64_aligned",
            (81, 60): "persistent64",
            (128, 100): "looped_aligned",
            (129, 100): "looped",
            (2, 25_000): "split_persistent2",
            (7, 7000): "split_persistent8",
            (16, 3000): "split_persistent32_aligned",
            (17, 3000): "split_persistent32",
            (48, 3000): "split_persistent_aligned",
            (49, 3000): "split_persistent",
        },
    ),
    "transpose": (
        transpose,
        lambda n, m: [torch.randn(m, n), torch.randn(m)],
        lambda x, y: [x.t() + y],
        {
            (5, 7): "block1024",
            (3, 70): "block1024",
            (5, 70): "tile8x256",
            (70, 5): "tile256x8",
            (31, 70): "tile32x64",
            (32, 64): "tile32x64_aligned",
            (70, 31): "tile64x32",
            (64, 16): "tile64x32_aligned",
            (48, 48): "tile32_aligned",
            (33, 47): "tile32",
            (192, 192): "tile64_aligned",
            (193, 191): "tile64",
        },
    ),
    "pointwise": (
        pointwise,
        lambda n, m: [torch.randn(n, m)],
        lambda x: [x.exp()],
        {(5, 7): "block256_aligned", (67, 97): "block1024_aligned"},
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_every_variant_is_taken_and_right(name: str) -> None:
    """At the size that it is for; those of 64 bits or unaligned addresses as well at another."""
    from symshape.runtime.triton.launch import load_triton

    make, inputs, eager, sizes = CASES[name]
    kernel, variants = plan(make())
    assert len(variants) <= MOST_VARIANTS
    assert variants[-1].condition == TRUE
    assert len({v.name for v in variants}) == len(variants)
    taken = {size: chosen(variants, size) for size in sizes}
    assert {size: v.name for size, v in taken.items()} == sizes
    rest = {v.name for v in variants} - set(sizes.values())
    # Rows that are split, but not into parts that are held at once, are longer than a test can have.
    assert all(name.endswith("_wide") or name.startswith(("block", "split")) for name in rest), rest
    first, last = list(sizes)[0], list(sizes)[-1]
    others = [(last if v.form in SPLIT else first, v) for v in variants if v.name in rest and not v.aligned]
    for size, variant in [*taken.items(), *others]:
        tensors = inputs(*size)
        expected = eager(*tensors)
        results = [torch.full(e.shape, 7.0) for e in expected]
        load_triton(emit_triton(kernel, [replace(variant, condition=TRUE)]))(*tensors, *results, *size)
        for result, wanted in zip(results, expected, strict=True):
            assert torch.allclose(result, wanted, rtol=1e-5, atol=1e-4), (variant.name, size)


def test_reduced_dims_without_a_reduction() -> None:
    """What was reduced may have been stored elsewhere since: there is nothing to split then."""
    k = KernelText("copied", 2, [(S0, "p"), (S1, "r")])
    x, out = k.arg("f32", [S0, S1]), k.arg("f32", [S0, S1], output=True)
    k.store(k.generic([k.view(x, IDENTITY)], "f32", "%r = math.exp %a0 : f32"), out, IDENTITY)
    _, variants = plan(k)
    assert {v.form for v in variants} == {"persistent", "headed", "looped"}


def test_alignment_is_of_addresses_strides_and_bounds() -> None:
    _, variants = plan(mixed())
    names = ("in0", "in1", "in2", "in3", "out0", "out1", "s1")
    assert variants[0].aligned == names
    assert chosen(variants, (3, 32)).aligned == names
    assert not chosen(variants, (3, 32), address=4).aligned
    assert not chosen(variants, (16, 33)).aligned


def test_whole_parts_have_no_bound() -> None:
    """All parts of a split row but the last are whole: an odd number of elements does not make accesses narrow."""
    _, variants = plan(total())
    long = chosen(variants, (100_003,))
    assert (long.name, long.aligned, long.yblock) == ("split_persistent_aligned", ("in0",), 2048)
    assert chosen(variants, (100_003,), address=4).name == "split_persistent"
    assert chosen(variants, (20_000_003,)).name == "split_persistent_many_aligned"


def test_more_than_32_bits() -> None:
    for name, (make, _, _, sizes) in CASES.items():
        _, variants = plan(make())
        for size in sizes:
            assert all(chosen(variants, big).index_bits == 64 for big in [(1 << 17, 1 << 17), (size[0], 1 << 33)]), name


@pytest.mark.parametrize("name", STAGES["planned"])
def test_without_a_pass(name: str) -> None:
    """The kernel then has the general variants; it is right with them."""
    from symshape.runtime.triton.launch import load_triton

    for case, (make, inputs, eager, sizes) in CASES.items():
        _, all_variants = plan(make())
        kernel, variants = plan(make(), disable=[name])
        assert variants[-1].condition == TRUE
        if name == "plan-alignment":
            assert not any(v.aligned for v in variants)
        elif name == "mix-reductions":  # there is one kernel
            assert variants == all_variants
        elif name == "plan-index-width":
            assert {v.index_bits for v in variants} == {64}
        else:
            plans = (name == "plan-reductions") == any(d.reduced for d in kernel.dims)
            assert ({v.form for v in variants} != {v.form for v in all_variants}) == (plans and case != "pointwise")
        size = list(sizes)[1]
        tensors = inputs(*size)
        expected = eager(*tensors)
        results = [torch.empty(e.shape) for e in expected]
        load_triton(emit_triton(kernel, variants))(*tensors, *results, *size)
        torch.testing.assert_close(results, expected)


def test_no_points() -> None:
    """Rows of constant length 0: nothing is read, the result is what a reduction starts from."""
    from symshape.runtime.triton.launch import load_triton

    k = KernelText("none", 1, [(S0, "p"), (0, "r")])
    x, out = k.arg("f32", [S0, 0]), k.arg("f32", [S0], output=True)
    k.store(k.reduce(k.view(x, IDENTITY), "add"), out, "(d0) -> (d0)")
    kernel, variants = plan(k)
    assert [v.form for v in variants if v.index_bits == 32] == ["persistent"]
    result = torch.ones(5)
    load_triton(emit_triton(kernel, variants))(torch.empty(5, 0), result, 5)
    assert result.eq(0).all()


def test_split_counts_are_near_the_best_of_the_model() -> None:
    import split_model

    for outer, reduced in split_model.grid():
        count = split_model.planned(outer, reduced)
        assert count >= 1
        assert count == 1 or outer * count * split_model.PARTIAL <= PlanReductions().workspace
        ratio = split_model.seconds(outer, reduced, count) / split_model.best(outer, reduced)[1]
        assert ratio <= 1.5, (outer, reduced, count)


def test_workspaces_are_bounded() -> None:
    """At most 4 MiB, at sizes where rows are few and long, and where they are just too many."""
    _, variants = plan(softmax())
    counts = []
    for rows in (1, 2, 7, 100, 527, 528, 529, 1000, 4223, 4224, 5000, 130_000, 200_000):
        for points in (49_152, 100_003, 1_000_000, 1 << 30):
            variant = chosen(variants, (rows, points), processors=1024)
            if variant.form in SPLIT:
                sizes = {"s0": rows, "s1": points, "processors": 1024}
                splits = variant.splits.evaluate(sizes) if variant.splits else -(-points // variant.rblock)
                assert 2 <= splits
                assert rows * 8 * (splits + 1) <= 4 << 20, (rows, points, splits)
                counts.append(variant.form)
    assert len(counts) > 20 and set(counts) == set(SPLIT)


def test_facts_of_the_graph_reach_the_table() -> None:
    """Rows of at most 1024 points, a multiple of 16: neither looped nor split, and only the address is tested."""
    import symshape

    x = torch.randn(4, 64)
    assumed = ["x.size(0) <= 4096", "x.size(1) <= 1024", "x.size(1) % 16 == 0"]
    options = {"target": "triton", "assume": assumed, "disable_passes": ["plan-tiles"]}
    report = symshape.explain(_softmax, x, options=options)
    (kernel,) = report.graphs[0].kernels
    assert {v.form for v in kernel.planned} == {"persistent"}
    assert {v.index_bits for v in kernel.planned} == {32}
    names = kernel.variants
    assert {"persistent256_aligned", "persistent256"} <= set(names)
    assert kernel.planned[names.index("persistent256")].aligned == ("out0", "s1")
    torch.testing.assert_close(report.result, torch.softmax(x, -1))


def test_tables_do_not_decide_what_is_aligned() -> None:
    """Four numbers for each channel are read beside every element: the elements are what must be wide."""
    import symshape

    x, channels = torch.randn(3, 8, 5, 7), [torch.rand(8) for _ in range(4)]
    report = symshape.explain(_normalised, x, *channels, options={"target": "triton"})
    (kernel,) = report.graphs[0].kernels
    large = {arg.name for arg in kernel.loops.args if len(arg.sizes) == 4}
    assert len(large) == 2
    assert all(large <= {*v.aligned} for v in kernel.planned if v.name.endswith("_aligned"))
    torch.testing.assert_close(report.result, _normalised(x, *channels))


def _normalised(x: torch.Tensor, *channels: torch.Tensor) -> torch.Tensor:
    a, b, c, d = (one[:, None, None] for one in channels)
    return ((x - a) * b * c + d).relu()


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)
