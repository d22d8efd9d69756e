"""Rows that share what depends on the lanes alone: values, and where such work is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from loop_builder import D0, D1, SYMBOLS, Builder

import symshape
from symshape.analysis.loops import LoopKernel
from symshape.codegen.cpu.objects.target import Target
from symshape.codegen.cpu.schedule.forms import forms_of
from symshape.codegen.cpu.schedule.sweep_order import closure
from symshape.machine import instruction_sets as cpu_level

WIDE = Target(16, True, True, permutes=2)
SIZES = ((7, 40), (1, 513), (31, 512), (33, 1100), (70, 17), (2, 1), (65, 16), (0, 5), (5, 0))


def _window(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.hann_window(x.shape[-1], dtype=x.dtype) + w


def _lanewise(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    scale = F.softplus(w).tanh()
    return [x * scale, torch.where(scale > 0.5, x, -x), (x + scale).to(torch.bfloat16)]


def _written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.mul_(torch.erf(w).exp()).add_(w)


def _repeated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Positions that depend on the lanes alone."""
    positions = (torch.arange(2 * x.shape[-1]) * 0.5).long()
    return x[:, positions] * w.sigmoid()[positions]


def _in_batches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x[:, None] + x[None, :3]) * torch.lgamma(w.abs() + 1).sin()


@pytest.mark.parametrize("function", [_window, _lanewise, _written, _repeated, _in_batches])
@pytest.mark.parametrize("level", [cpu_level.NATIVE, *(one for one in cpu_level.held() if one == "x86-64-v3")])
def test_values(function: Callable[..., torch.Tensor], level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_CPU", level)

    def compiled_anew(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return function(x, w)

    compiled = symshape.compile(compiled_anew, strict=True)
    for n, m in SIZES:
        x, w = torch.randn(n, m), torch.randn(m)
        torch.testing.assert_close(compiled(x.clone(), w), function(x.clone(), w))


def _interpolated(x: torch.Tensor) -> list[torch.Tensor]:
    larger = (x.shape[2] * 3 // 2, x.shape[3] * 2)
    return [F.interpolate(x, size=larger, mode=mode) for mode in ("bilinear", "bicubic", "nearest-exact")]


def test_images_of_any_size() -> None:
    compiled = symshape.compile(_interpolated, strict=True)
    for sizes in ((2, 3, 9, 11), (1, 1, 2, 2), (1, 2, 40, 70), (3, 1, 67, 3)):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), _interpolated(x), rtol=1e-4, atol=1e-5)


def _scaled(function: str) -> LoopKernel:
    """out[i, j] = x[i, j] * f(f(w[j]))."""
    n, m = SYMBOLS[:2]
    builder = Builder("scaled", [n, m])
    x, w, out = builder.arg("f32", [n, m]), builder.arg("f32", [m]), builder.arg("f32", [n, m], output=True)
    scale = builder.load(w, D1)
    for _ in range(2):
        scale = builder.add(function, scale)
    product = builder.add("arith.mulf", builder.load(x, D0 * m + D1), scale)
    builder.store(product, out, D0 * m + D1)
    return builder.kernel()


def test_only_heavy_work_is_shared() -> None:
    assert forms_of(_scaled("math.sqrt"), WIDE)[0].division.work is None
    kernel = _scaled("math.tanh")
    form = forms_of(kernel, WIDE)[0]
    work = form.division.work
    assert work is not None and work.rows.name == "d0"
    assert [instr.op for instr in work.kept] == ["math.tanh"] and work.code == closure(kernel.code, work.kept).code
    (sweep,) = form.plan.sweeps
    assert not any(instr.op == "math.tanh" for instr in sweep.code)
