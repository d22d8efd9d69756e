"""Short rows, several of which share a vector: values at every length, and what is read how."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from loop_builder import D0, D1, SYMBOLS, Builder

import symshape
from symshape.analysis.loops import LoopKernel
from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.target import Target
from symshape.codegen.cpu.schedule.forms import forms_of, in_order
from symshape.codegen.cpu.schedule.packed_rows import lane_stride
from symshape.machine import instruction_sets as cpu_level
from symshape.prover.numbers.expr import Expr

WIDE = Target(16, True, True, permutes=2)
Make = Callable[..., torch.Tensor]  # a tensor of the given sizes
PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[int, int, Make], tuple[torch.Tensor, ...]]]] = {
    "bias": (lambda x, b: x + b, lambda n, s, r: (r(n, s), r(s))),
    "factor of a row": (lambda x, w: x * w[:, None], lambda n, s, r: (r(n, s), r(n))),
    "cat": (lambda x, y, z: torch.cat([x, y, z], -1), lambda n, s, r: (r(n, s), r(n, 2), r(n, s))),
    "pad": (lambda x: F.pad(x, (1, 2)), lambda n, s, r: (r(n, s),)),
    "slices": (lambda x: x[:, :-1] + x[:, 1:], lambda n, s, r: (r(n, s + 1),)),
    "every second column": (lambda x: x[:, ::2] + x[:, 1::2], lambda n, s, r: (r(n, 2 * s),)),
    "flip": (lambda x: x.flip(-1) + x.flip(0, 1), lambda n, s, r: (r(n, s),)),
    "roll": (lambda x: x.roll(1, -1) + x, lambda n, s, r: (r(n, s),)),
    "transposed rows": (lambda x, y: x.t() + y, lambda n, s, r: (r(s, n), r(n, s))),
    "transposed matrices": (lambda x: x.mT + x, lambda n, s, r: (r(n, s, s),)),
    "outer": (lambda x, y: x[:, :, None] * y[:, None, :], lambda n, s, r: (r(n, s), r(n, 3))),
    "eye": (lambda x: x + torch.eye(x.shape[-1]).to(x.dtype), lambda n, s, r: (r(n, s, s),)),
    "larger": (lambda x, t: torch.where(x > t[:, None], x, t[:, None]), lambda n, s, r: (r(n, s), r(n))),
    "numbers": (
        lambda x: x + (torch.arange(x.shape[0])[:, None] * torch.arange(x.shape[1]) % 3).to(x.dtype),
        lambda n, s, r: (r(n, s),),
    ),
    "homogeneous": (
        lambda x, t: torch.cat([torch.cat([x, t[..., None]], -1), t[:, :1, None].expand(-1, 1, t.shape[1] + 1)], 1),
        lambda n, s, r: (r(n, s, s), r(n, s)),
    ),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("level", [cpu_level.NATIVE, *(one for one in cpu_level.held() if one == "x86-64-v3")])
def test_values_at_every_length(name: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_CPU", level)
    function, inputs = PROGRAMS[name]
    dtype = DTYPES[(list(PROGRAMS).index(name) + (level == cpu_level.NATIVE)) % len(DTYPES)]

    def make(*sizes: int) -> torch.Tensor:
        return torch.randint(-9, 10, sizes).to(dtype)

    def compiled_anew(*tensors: torch.Tensor) -> torch.Tensor:
        return function(*tensors)

    compiled = symshape.compile(compiled_anew)
    for n, s in product((7, 1, 2, 37, 2049), (3, 1, 2, 4, 5, 7, 8, 9, 15, 16, 17)):
        given = inputs(n, s, make)
        assert torch.equal(compiled(*given), function(*given)), (n, s)


def _biased(length: Expr, dtype: str = "f32") -> LoopKernel:
    builder = Builder("biased", [SYMBOLS[0], length])
    x, bias = builder.arg(dtype, [SYMBOLS[0], length]), builder.arg(dtype, [length])
    out = builder.arg(dtype, [SYMBOLS[0], length], output=True)
    total = builder.add("arith.addf", builder.load(x, D0 * length + D1), builder.load(bias, D1), dtype=dtype)
    builder.store(total, out, D0 * length + D1)
    return builder.kernel()


def test_the_first_form_tested_is_for_rows_shorter_than_a_vector() -> None:
    kernel = _biased(SYMBOLS[1])
    first, *_ = in_order(forms_of(kernel, WIDE))
    assert first.bounds == ((SYMBOLS[1], 1, 15), (SYMBOLS[0], 2, None))
    text = emit_cpu(kernel, WIDE)
    code = re.search(r"@biased_packed_1_body\(.*?\n}", text, re.DOTALL)
    assert code is not None and code[0].count("vpermi2var") == code[0].count("permvar") == 1
    assert "masked.scatter" not in code[0] and code[0].count("masked.gather") == 1  # of the rows that are left


def test_no_form_without_an_instruction_that_permutes() -> None:
    assert not any(form.division.packed for form in forms_of(_biased(SYMBOLS[1]), Target(8, False, False)))


@pytest.mark.parametrize(("length", "packed"), [(3, False), (8, True), (13, True), (16, False), (40, False)])
def test_rows_of_a_known_length_are_packed_where_that_costs_less(length: int, packed: bool) -> None:
    """Rows of 3 are unrolled: whole vectors of each column, shuffled; rows of 16 are vectors."""
    usual = forms_of(_biased(Expr.const(length)), WIDE)[0]
    assert bool(usual.division.packed) == packed


def test_stride_between_lanes() -> None:
    m, n, k = SYMBOLS[:3]
    sizes = {"d1": m, "d2": n}
    assert lane_stride({"d0": m * n, "d1": n, "d2": Expr.const(1)}, sizes, "d0") == 1
    assert lane_stride({"d0": m * n * k, "d1": n * k, "d2": k}, sizes, "d0") == k
    assert lane_stride({"d0": m * k, "d1": n, "d2": Expr.const(1)}, sizes, "d0") is None
    assert lane_stride(dict.fromkeys(("d0", "d1", "d2"), Expr.const(0)), sizes, "d0") == 0
