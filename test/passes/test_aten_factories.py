"""Type promotion against torch, mixed operands, broadcasting, symbolic numbers, and the factories."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lowering import check

from symshape.artifact.element_types import DTYPES
from symshape.passes.lowering.aten import promotion
from symshape.passes.lowering.aten.builder import Tensor
from symshape.prover.numbers.expr import Expr

aten = torch.ops.aten
NAMES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
F32, F64, BF16, I64, I32, U8 = torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8


@pytest.mark.parametrize("rank", [0, 1])
def test_promotion(rank: int) -> None:
    def operand(name: str, rank: int) -> tuple[Any, Any]:
        sizes = (Expr.const(2),) * rank
        return torch.ones([2] * rank, dtype=getattr(torch, name)), Tensor(None, sizes, DTYPES[name])

    numbers = [(True, True), (2, 2), (0.5, 0.5)]
    for name, other in itertools.product(NAMES, NAMES):
        theirs, mine = operand(name, rank)
        for their_second, my_second in [operand(other, 0), operand(other, 1), *numbers]:
            expected = torch.result_type(theirs, their_second)
            assert promotion.promote((mine, my_second)) == DTYPES[str(expected)[6:]], (name, other, rank, their_second)


@pytest.mark.parametrize("dtype", [torch.float16, BF16])
def test_nearest(dtype: torch.dtype) -> None:
    for value in (0.1, -0.1, 257, 1.00390625, 1.01171875, 65519.0, 65520.0, 3.4e38, 1e40, 6e-8, 1e-46, 2049, 0, -0.0):
        expected = torch.tensor([value], dtype=torch.float32).to(dtype).item()
        assert promotion.nearest(value, DTYPES[str(dtype)[6:]]) == expected, value


def values(*shape: int, dtype: torch.dtype = F32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 8).to(dtype)


MIXED: list[tuple[torch.dtype, torch.dtype]] = [
    (I64, F32),
    (BF16, F32),
    (BF16, torch.float16),
    (I32, I64),
    (U8, torch.int8),
    (F32, F64),
]


@pytest.mark.parametrize("name", ["add", "div", "lt", "maximum"])
def test_mixed_dtypes_and_broadcasting(name: str) -> None:
    packet = getattr(aten, name)
    operation = packet.default if name == "maximum" else packet.Tensor
    with_number = packet.Scalar if name != "maximum" else aten.clamp_min.default

    def function(*flat: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(flat[::2], flat[1::2])
        return [operation(x, y) for x, y in pairs] + [with_number(x, 0.5) for x in flat]

    def inputs(rows: int, columns: int) -> list[torch.Tensor]:
        found = []
        for first, second in MIXED:
            for shape, other in (((rows, 1), (1, columns)), ((rows, columns), ()), ((), ())):
                found += [values(*shape, dtype=first), values(*other, dtype=second, seed=1)]
        return found

    check(function, inputs(5, 4), inputs(3, 9))


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (2, 0), (1, 1)])
def test_sizes_zero_and_one(shape: tuple[int, int]) -> None:
    check(lambda x, y: [aten.add.Tensor(x, y), aten.exp.default(x)], [values(*shape), values(shape[1])])


def test_symbolic_numbers() -> None:
    def function(x: torch.Tensor, k: torch.Tensor) -> list[torch.Tensor]:
        n = x.shape[0]
        return [
            aten.add.Tensor(x, n),
            aten.mul.Tensor(k, n * 2 + 1),
            aten.lt.Scalar(k, n),
            aten.div.Tensor(k, n),
            aten.pow.Tensor_Scalar(k, n),
            aten.full.default([n, 3], n),
            aten.clamp.default(k, None, n - 1),
            aten.remainder.Scalar(k, n),
            torch.ops.prims.iota.default(n, start=n, step=2, dtype=I64, device="cpu", requires_grad=False),
        ]

    check(function, [values(4, 6), values(4, dtype=I64)], [values(7, 3), values(7, dtype=I64)])


def _iota(n: int) -> torch.Tensor:
    return torch.ops.prims.iota.default(n, start=3, step=-2, dtype=I64, device="cpu", requires_grad=False)


FACTORIES: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "full": lambda x, n: [
        aten.full.default([n, 2], 1.5),
        aten.full.default([n], 3, dtype=I32),
        aten.full.default([], True),
    ],
    "like": lambda x, n: [aten.full_like.default(x, 2), aten.full_like.default(x, True, dtype=I64)],
    "number": lambda x, n: [aten.scalar_tensor.default(0.1)],
    "empty": lambda x, n: [aten.full_like.default(aten.empty.memory_format([n]), 2)],
    "iota": lambda x, n: [_iota(n)],
}


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_factory(name: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return FACTORIES[name](x, x.shape[0])

    check(function, [values(5, 4)], [values(8, 3)])
