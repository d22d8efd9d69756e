"""Operators of one number over all numbers of the half types, and of two numbers over many pairs, against float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, UnaryUfuncInfo

import symshape

FACTOR = 1.5  # of eager's error
DTYPES = (torch.bfloat16, torch.float16)


def every(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every 251st number, zeros, infinities and small integers."""
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    some = torch.cat([every(dtype)[::251], special])
    left, right = torch.meshgrid(some, some, indexing="ij")
    return left.reshape(-1), right.reshape(-1)


def chosen(kind: type[OpInfo], dtype: torch.dtype) -> list[OpInfo]:
    return [info for info in op_db if isinstance(info, kind) and dtype in info.dtypes and "jiterator" not in info.name]


def half_units(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half the distance of ``x``'s neighbours, in float64."""
    info = torch.finfo(dtype)
    return (x.abs() * info.eps / 2).clamp(min=info.smallest_normal * info.eps / 2)


def equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Other types than halves; those of float64 up to a few units in the last place."""
    wide = torch.complex128 if x.is_complex() else torch.float64
    return torch.allclose(x.to(wide), y.to(wide), rtol=1e-14 if x.dtype == wide else 0, atol=0, equal_nan=True)


def worse_than_eager(call: Callable[..., Any], inputs: tuple[torch.Tensor, ...], dtype: torch.dtype) -> str:
    """Where a result is farther from float64's than FACTOR times eager's is, and than its own rounding explains; where
    it is finite and the other is not, unless it agrees with float64. "" if nowhere."""
    torch._dynamo.reset()
    ours = torch.compile(call, backend="symshape", dynamic=True, options={"cache": False})(*inputs)
    eager = call(*inputs)
    assert ours.dtype == eager.dtype
    if eager.dtype not in DTYPES:
        return "" if equal(ours, eager) else "another result"
    exact, ours, eager = call(*[one.double() for one in inputs]), ours.double(), eager.double()
    known = exact.abs() <= torch.finfo(dtype).max
    strange = (ours.isnan() != eager.isnan()) | (ours.isinf() & eager.isfinite())
    strange &= ~(known & ours.isfinite()) & ~(exact.to(dtype).isinf() & ours.isinf()) & ~(exact.isnan() & ours.isnan())
    # A difference of inputs from their function, x - tanh(x), keeps what float32 loses of the inputs.
    lost = sum(one.double().abs().nan_to_num(0, 0) for one in inputs) * 2.0**-23
    allowed = (FACTOR * (eager - exact).abs()).nan_to_num(0, 0) + 1.01 * half_units(exact, dtype) + lost
    far = known & ~((ours - exact).abs() <= allowed) & eager.isfinite()
    where = (strange | far).nonzero().flatten()[:3].tolist()
    return "; ".join(
        f"{[one[i].item() for one in inputs]}: {ours[i]}, eager {eager[i]}, exact {exact[i]}" for i in where
    )


def leaf(result: Any) -> torch.Tensor:
    """The first result: of frexp, the mantissa."""
    return result if isinstance(result, torch.Tensor) else result[0]


def findings(kind: type[OpInfo], inputs: tuple[torch.Tensor, ...], dtype: torch.dtype) -> list[str]:
    found = []
    for info in chosen(kind, dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample = next(iter(info.sample_inputs("cpu", dtype)))
            more = sample.args[len(inputs) - 1 :]
            try:
                info.op(*inputs, *more, **sample.kwargs), info.op(*[x.double() for x in inputs], *more, **sample.kwargs)
            except (RuntimeError, NotImplementedError):  # not of such inputs
                continue
            text = worse_than_eager(lambda *x: leaf(info.op(*x, *more, **sample.kwargs)), inputs, dtype)  # noqa: B023
        found += [f"{info.full_name}: {text}"] if text else []
    return found


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number(dtype: torch.dtype) -> None:
    assert len(chosen(UnaryUfuncInfo, dtype)) > 80
    assert findings(UnaryUfuncInfo, (every(dtype),), dtype) == []


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_pairs(dtype: torch.dtype) -> None:
    assert len(chosen(BinaryUfuncInfo, dtype)) > 40
    assert findings(BinaryUfuncInfo, pairs(dtype), dtype) == []


def of_a_number(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """What takes a tensor without dims of another type: it is rounded first, but as a factor or divisor."""
    compared = [torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge, torch.logical_and]
    computed = [torch.add, torch.sub, torch.mul, torch.div, torch.remainder, torch.fmod, torch.floor_divide]
    chosen = [torch.maximum, torch.fmin, torch.hypot, torch.copysign]
    return [
        *(
            f(a, b)
            for f in (*compared, *computed, *chosen)
            for a, b in [(x, y), (y, x)]
            if a is x or f is not torch.floor_divide
        ),
        torch.addcmul(x, x, y),
        torch.clamp(x, max=y),
        x.clone().add_(y),
        torch.ldexp(x, y),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_without_dims_is_rounded_to_the_half_type(dtype) -> None:
    compiled = symshape.compile(of_a_number)
    for other in (torch.float32, torch.float64, torch.int64):
        for value in (-1.63, 0.1, 0.3, 3.14159, 1e-9):
            y = torch.tensor(value * 700).round().to(other) if other is torch.int64 else torch.tensor(value).to(other)
            x = torch.cat([torch.randn(29) * 3, torch.tensor([1.0, 2.0, 3.0, 5.0]) * y, torch.tensor([0.0, -0.0])]).to(
                dtype
            )
            for i, (ours, eager) in enumerate(zip(compiled(x, y), of_a_number(x, y), strict=True)):
                torch.testing.assert_close(
                    ours, eager, rtol=0, atol=0, equal_nan=True, msg=lambda text, i=i: f"{i}: {text}"
                )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_go_to_eager_modes_integers(dtype: torch.dtype) -> None:
    """A rounding decides to which: that of each step, and of the first operand if it is a number."""

    def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        made = [torch.div(x, y, rounding_mode=mode) for mode in ("floor", "trunc")]
        made += [torch.div(x, 0.7, rounding_mode=mode) for mode in ("floor", "trunc")]
        return [*made, x // y, x // 3.7, 3.7 // x, -0.3 // y]

    compiled = symshape.compile(run)
    torch.manual_seed(0)
    drawn = (torch.randn(2, 60_000) * 3).to(dtype)
    for x, y in (pairs(dtype), drawn):
        for found, expected in zip(compiled(x, y), run(x, y)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
