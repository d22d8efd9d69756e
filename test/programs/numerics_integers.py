"""The corners of arithmetic: functions and the numbers at which they are asked. Results equal eager's bit by bit.

A table's functions are compiled as one; each takes the tensors that its entry makes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from program import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8

Tensor = torch.Tensor
nan, inf = math.nan, math.inf
REPEATED = 5  # more than a vector of any dtype, and a rest


@dataclass(frozen=True)
class Corner:
    """``zero_signs``: -0.0 and 0.0 differ. ``gradient``: with respect to the first tensor, too."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    zero_signs: bool = True
    gradient: bool = False


C = Corner


def grid(*columns: list[Any], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Every combination of the columns, several times over."""
    rows = list(itertools.product(*columns)) * REPEATED
    return tuple(torch.tensor(column, dtype=dtype) for column in zip(*rows))


def values(*numbers: float, dtype: torch.dtype = F32) -> tuple[Tensor, ...]:
    return grid(list(numbers), dtype=dtype)


def edges(dtype: torch.dtype) -> list[int]:
    info = torch.iinfo(dtype)
    return sorted(
        {info.min, info.min + 1, *(x for x in (-8, -7, -1) if x >= info.min), 0, 1, 6, 7, info.max - 1, info.max}
    )


def divisors(dtype: torch.dtype) -> list[int]:
    """Without -1: the smallest integer by it is not defined."""
    info = torch.iinfo(dtype)
    return [x for x in (-100, -7, -3, -2, 1, 2, 3, 7, info.max) if x >= info.min]


INTEGERS = (I8, I16, I32, I64, U8)
DIVISIONS: dict[str, Callable[..., Tensor]] = {
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "true": lambda x, y: x / y,
    "by constants": lambda x, y: (x // 3, x % 3, torch.fmod(x, 7), x // 7, x % 7, x // 2, x % 2),
}

INTEGER_DIVISION = [
    C(f"{name} {dtype}", function, grid(edges(dtype), divisors(dtype), dtype=dtype))
    for dtype in INTEGERS
    for name, function in DIVISIONS.items()
] + [
    C(
        f"by negative constants {dtype}",
        lambda x: (x // -3, x % -3, torch.fmod(x, -3), x // -7, x % -7, x // -2, x % -2),
        grid(edges(dtype), dtype=dtype),
    )
    for dtype in INTEGERS
    if dtype != U8
]

SHIFTS = [
    C(f"{name} {dtype}", function, grid(edges(dtype), [-100, -1, 0, 1, 3, bits - 1, bits, bits + 1, 100], dtype=dtype))
    for dtype, bits in ((I8, 8), (I16, 16), (I32, 32), (I64, 64))
    for name, function in (("left", lambda x, y: x << y), ("right", lambda x, y: x >> y))
] + [
    C("left uint8", lambda x, y: x << y, grid([0, 1, 127, 255], [0, 1, 7, 8, 9, 200], dtype=U8)),
    C("right uint8", lambda x, y: x >> y, grid([0, 1, 127, 255], [0, 1, 7, 8, 9, 200], dtype=U8)),
    C("by constants", lambda x: (x << 1, x << 31, x << 32, x >> 1, x >> 31, x >> 32), grid(edges(I32), dtype=I32)),
]

OVERFLOW = [
    C(f"{name} {dtype}", function, grid(edges(dtype), edges(dtype), dtype=dtype))
    for dtype in INTEGERS
    for name, function in (
        ("add", lambda x, y: x + y),
        ("sub", lambda x, y: x - y),
        ("mul", lambda x, y: x * y),
        ("neg", lambda x, y: -x),
        ("abs", lambda x, y: (x.abs(), x - y.abs())),
        ("square", lambda x, y: (x.square(), x**3)),
        ("alpha", lambda x, y: torch.add(x, y, alpha=3)),
        ("max", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y))),
        ("compare", lambda x, y: (x < y, x <= y, x == y, x > -1, x >= 200)),
        ("narrow", lambda x, y: (x * y).to(I8)),
        ("widen", lambda x, y: x.to(I64) * y.to(I64)),
        ("unsigned", lambda x, y: (x.to(U8), (x + y).to(U8) > 3)),
        ("sum", lambda x, y: (x.sum(), y.cumsum(0), x[:9].prod())),
        ("bits", lambda x, y: (x & y, x | y, x ^ y, ~x)),
        ("clamp", lambda x, y: (x.clamp(-5, 5), x.clamp(min=3), x.sign())),
        ("mixed", lambda x, y: (x + y.to(I16), x * True)),
    )
]

INSIDE = (0.0, -0.0, 0.49, 0.5, 0.99, 1.0, 1.5, 2.5, 99.99, 126.5, -0.5, -0.99, -1.0, -1.5, -99.99, -127.0)
CONVERSIONS = [
    *(
        C(f"{source} to {dtype}", lambda x, dtype=dtype: x.to(dtype), values(*INSIDE, dtype=source))
        for source in (F32, F64, F16, BF16)
        for dtype in (I64, I32, I16, I8, BOOL, F32, F64, F16, BF16)
    ),
    C("large to int64", lambda x: x.to(I64), values(2.0**31, -(2.0**31), 2.0**62, -(2.0**63), 1e15, dtype=F64)),
    C("large to int32", lambda x: x.to(I32), values(2.0**31 - 128, -(2.0**31), 1e9)),
    C("to uint8", lambda x: x.to(U8), values(0.0, 0.9, 1.5, 127.5, 128.0, 200.7, 255.0)),
    C(
        "integers to floats",
        lambda x: (x.to(F32), x.to(F64), x.to(F16), x.to(BF16), x / 1, x.bool(), x * 1.0),
        values(2**24 + 1, 2**53 + 1, -(2**53) - 1, 65504, 65519, 65520, 70000, 257, 2**63 - 1, -(2**63), dtype=I64),
    ),
    C("uint8 to floats", lambda x: (x.to(F32), x.to(F16), x + 0.5, x.to(I8)), values(0, 1, 127, 128, 255, dtype=U8)),
    C(
        "bool to numbers",
        lambda x: (x + 1, x * 2.5, x.to(F16), x.to(I8), x + x, x * x, ~x),
        grid([True, False], dtype=BOOL),
    ),
    C(
        "nan to bool",
        lambda x: (x.bool(), x.any(), x.all(), x.logical_not(), x.count_nonzero()),
        values(nan, 0.0, -0.0, inf),
    ),
    C(
        "wide to half",
        lambda x: (x.to(F16), x.to(BF16), x.to(F32)),
        values(
            65519.99,
            65520.0,
            1 + 2.0**-11,
            1 + 2.0**-11 + 2.0**-40,
            1 + 2.0**-8,
            1 + 2.0**-8 + 2.0**-40,
            1e-8,
            6e-8,
            3e38,
            1e39,
            2.0**-24,
            2.0**-25,
            1.5 * 2.0**-25,
            nan,
            -inf,
            dtype=F64,
        ),
    ),
]
