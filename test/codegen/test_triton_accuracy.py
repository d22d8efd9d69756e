"""Errors of reductions against float64, next to eager's, for every form; and that two runs agree in every bit."""

from __future__ import annotations

import pytest
import torch
from kernel_text import KernelText
from triton_cases import S0, S1, WIDEN, layer_norm, loops, reduction, runner, softmax

from symshape.analysis.loops import LoopKernel
from symshape.codegen.variants import Variant
from symshape.prover.numbers.condition import TRUE
from symshape.prover.numbers.expr import Expr

pytestmark = pytest.mark.filterwarnings("ignore")
FORMS = (
    Variant("persistent", "persistent", TRUE, 1, rblock=16384, num_warps=16),
    Variant("looped", "looped", TRUE, 1, rblock=512),
    Variant("split", "split", TRUE, 1, 512, rblock=256, splits=Expr.const(5)),
)
SHAPE = (2, 10_007)
_ULPS = 4  # by which a result may differ from the exact one however it is computed


def variance(dtype: str) -> KernelText:
    """The mean of the squared deviations, in float32 for halves too."""
    k = KernelText("variance", 2, [(S0, "p"), (S1, "r")])
    x, out = k.arg(dtype, [S0, S1]), k.arg("f32", [S0], output=True)
    v = k.view(x, "(d0, d1) -> (d0, d1)")
    v = k.generic([v], "f32", WIDEN) if dtype == "bf16" else v
    divide = f"""%n = arith.index_cast {k.index(S1)} : index to i64
    %f = arith.sitofp %n : i64 to f32
    %r = arith.divf %a0, %f : f32"""
    mean = k.generic([k.reduce(v, "add")], "f32", divide, row=True)
    square = k.generic([v, mean], "f32", "%d = arith.subf %a0, %a1 : f32\n    %r = arith.mulf %d, %d : f32")
    k.store(k.generic([k.reduce(square, "add")], "f32", divide, row=True), out, "(d0) -> (d0)")
    return k


def twice(kernel: LoopKernel, variant: Variant, inputs: list[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    """The result; two runs must agree in every bit."""
    launch = runner(kernel, variant)
    other = torch.empty_like(out)
    for result in (out, other):
        launch(*inputs, result, *SHAPE)
    assert torch.equal(out.view(torch.uint8), other.view(torch.uint8))
    return out


def check(actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """At most twice eager's error, or rounding."""
    scale = exact.abs().max()
    ours, theirs = ((value.double() - exact).abs().max() / scale for value in (actual, eager))
    assert ours <= max(2 * theirs, _ULPS * torch.finfo(actual.dtype).eps)


@pytest.mark.parametrize("variant", FORMS, ids=lambda v: v.name)
def test_errors(variant: Variant) -> None:
    torch.manual_seed(1)
    x = torch.randn(SHAPE) + 3.0
    out = torch.empty(SHAPE[0])
    check(twice(loops(reduction("add")), variant, [x], out), x.sum(1), x.double().sum(1))
    check(twice(loops(softmax()), variant, [x], torch.empty_like(x)), torch.softmax(x, 1), torch.softmax(x.double(), 1))
    for shift in (0.0, 1e3):  # far from zero, where E[x^2] - E[x]^2 would lose every digit
        y = x + shift
        check(twice(loops(variance("f32")), variant, [y], out), y.var(1, correction=0), y.double().var(1, correction=0))
    half = x.bfloat16()
    exact = half.double().var(1, correction=0)
    check(twice(loops(variance("bf16")), variant, [half], out), half.float().var(1, correction=0), exact)
    check(
        twice(loops(softmax(dtype="bf16")), variant, [half], torch.empty_like(half)),
        torch.softmax(half, 1),
        torch.softmax(half.double(), 1),
    )
    y, weight = x + 30.0, torch.randn(SHAPE[1])
    outs = [torch.empty_like(y), torch.empty(SHAPE[0])]
    runner(layer_norm(), variant)(y, weight, *outs, *SHAPE)
    check(outs[0], torch.layer_norm(y, SHAPE[1:], weight), torch.layer_norm(y.double(), SHAPE[1:], weight.double()))
