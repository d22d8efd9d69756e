"""float64 to float16 on the CPU: through float32 as eager does it, one number at a time and in vectors."""

from __future__ import annotations

import itertools

import pytest
import torch
from loop_builder import D0, SIZES, SYMBOLS, ZERO, Builder, build, cpu_target

from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.prover.numbers.expr import Expr
from symshape.runtime.cpu.load_objects import load_object

__all__ = ["cpu_target"]  # every test here runs once per target

TIE = 1 + 2.0**-11  # between two halves; a rounding to float32 brings numbers near it there
NUMBERS = [
    0.0,
    1.0,
    TIE,
    TIE + 2.0**-40,
    TIE - 2.0**-40,
    65519.999999,
    65520.0,
    2.0**-24,
    2.0**-25 + 2.0**-60,
    1e-300,
    1e300,
    float("inf"),
    float("nan"),
]


def signed(sizes: list[Expr], address: Expr) -> Builder:
    """copysign(x, y) in float64, rounded to float16."""
    b = Builder(f"signed_{len(sizes)}", sizes, symbols=len(sizes))
    x, y, out = b.arg("f64", sizes), b.arg("f64", sizes), b.arg("f16", sizes, output=True)
    value = b.add("math.copysign", b.load(x, address), b.load(y, address), dtype="f64")
    b.store(b.add("arith.truncf", value, dtype="f16"), out, address)
    return b


def same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Also signs of zeros and NaN."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(actual.signbit(), expected.signbit())


def test_rounding_of_signed_numbers() -> None:
    scalar, vector = build(signed([], ZERO), signed([SYMBOLS[0]], D0))
    numbers = [sign * x for x in NUMBERS for sign in (1, -1)]
    x, y = torch.tensor(list(itertools.product(numbers, [1e-300, -1e-300, 2.0, -2.0])), dtype=torch.float64).T.clone()
    for one, sign in zip(x, y):
        out = torch.zeros((), dtype=torch.float16)
        scalar(one, sign, out)
        same_bits(out, torch.copysign(one, sign).half())
    for size in (size for size in SIZES if size < 1000):
        a, b = (t.repeat(3)[:size] for t in (x, y))
        out = torch.zeros(size, dtype=torch.float16)
        vector(a, b, out, size)
        same_bits(out, torch.copysign(a, b).half())


@pytest.mark.parametrize("level", range(4))
def test_atan2_of_two_halves(level: int) -> None:
    """Its float64 result has the sign of an argument: no level of LLVM may round that sign from float64 to float16."""
    b = Builder("atan2", [], symbols=0)
    x, y, out = (b.arg("f16", [], output=i == 2) for i in range(3))
    b.store(b.add("math.atan2", b.load(x, ZERO), b.load(y, ZERO), dtype="f16"), out, ZERO)
    data, _ = compile_objects([emit_cpu(b.kernel())], level)
    function = load_object(data, {"atan2": 3})["atan2"]
    numbers = [0.0, -0.0, 1.5, -0.25, 6e-8, 65504.0, float("-inf"), float("nan")]
    for pair in itertools.product(numbers, repeat=2):
        mine, other = torch.tensor(pair, dtype=torch.float16)
        result = torch.zeros((), dtype=torch.float16)
        function(mine.data_ptr(), other.data_ptr(), result.data_ptr())
        torch.testing.assert_close(result, torch.atan2(mine, other), rtol=0, atol=0, equal_nan=True)
        assert result.isnan() or result.signbit() == mine.signbit()
