"""Errors of every reduction against float64: at most twice eager's, or rounding. Two runs agree in every bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from accuracy import Errors, accurate, draws

import symshape
from symshape.tools.measure import tensors_of

Tensor = torch.Tensor
Shape = tuple[int, int]

# Of a matrix and the dim to reduce.
ALONG: dict[str, Callable[[Tensor, int], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "var": lambda x, d: (x.var(d), x.var(d, correction=0)),
    "softmax": lambda x, d: x.softmax(d),
    "prod": lambda x, d: (1 + x * 0.001).prod(d),
    "var mean, far from 0": lambda x, d: torch.var_mean(x + 10, d),
    "std": lambda x, d: x.std(d),
    "extrema": lambda x, d: (x.amax(d), x.amin(d), torch.aminmax(x, dim=d), x.max(d), x.min(d)),
    "places": lambda x, d: (x.argmax(d), x.argmin(d)),
    "truth": lambda x, d: ((x > 2).any(d), (x > -2).all(d), (x > 0).count_nonzero(d)),
    "log softmax": lambda x, d: x.log_softmax(d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "norms": lambda x, d: [torch.linalg.vector_norm(x, p, dim=d) for p in (0.5, 1, 2, 3, float("inf"), float("-inf"))],
    "nan": lambda x, d: (x.nansum(d), x.nanmean(d)),
    "running": lambda x, d: x.cumsum(d),
    "rms": lambda x, d: x * torch.rsqrt(x.pow(2).mean(d, keepdim=True) + 1e-6),
    "normalize": lambda x, d: F.normalize(x, dim=d),
    "cosine": lambda x, d: F.cosine_similarity(x, x.abs(), dim=d),
    "products": lambda x, d: ((x * x).sum(d), (x * x.sin()).sum(d)),
}
# Of a matrix.
WHOLE: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "var": lambda x: (x.var(), x.std()),
    "norm": lambda x: x.norm(),
    "extrema": lambda x: (x.amax(), x.min(), x.argmax()),
    "prod": lambda x: (1 + x * 0.001).prod(),
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "rms norm": lambda x: F.rms_norm(x, (x.shape[1],), None, 1e-6),
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(x.shape[0]) * 7919 % x.shape[1]),
    "losses": lambda x: (F.mse_loss(x, x.sin()), F.l1_loss(x, x.sin()), F.smooth_l1_loss(x, x.sin())),
    "binary cross entropy": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid()),
    "divergence": lambda x: F.kl_div(x.log_softmax(1), x.sin().softmax(1), reduction="sum"),
}
TABLES: dict[str, dict[str, Callable[[Tensor], Any]]] = {
    "rows": {name: lambda x, f=f: f(x, 1) for name, f in ALONG.items()},
    "columns": {name: lambda x, f=f: f(x, 0) for name, f in ALONG.items()},
    "whole": WHOLE,
}
QUICK = ("sum", "var")
FEW: Sequence[Shape] = ((33, 40), (1000, 7), (33_331, 3))
MANY: Sequence[Shape] = (
    *FEW,
    (7, 1000),
    (1, 1),
    (1, 7),
    (7, 1),
    (1, 1000),
    (1000, 1),
    (3, 33_331),
    (1, 100_003),
    (100_003, 1),
    (317, 331),
)
DTYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_rows_and_columns(dtype: torch.dtype) -> None:
    chosen = {f"{name}, {table}": f for table, own in TABLES.items() for name, f in own.items() if name in QUICK}
    check(chosen, dtype, FEW)


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("table", TABLES)
def test_every_reduction(table: str, dtype: torch.dtype) -> None:
    check(TABLES[table], dtype, MANY)


def check(table: dict[str, Callable[[Tensor], Any]], dtype: torch.dtype, shapes: Sequence[Shape]) -> None:
    """All of a table in one graph; several draws of the inputs at each size."""

    def all_of_them(x: Tensor) -> list[Any]:
        return [function(x) for function in table.values()]

    compiled, wrong = symshape.compile(all_of_them), []
    for shape in shapes:
        errors = {name: (Errors(), Errors()) for name in table}
        for seed in range(draws(all_of_them(torch.randn(shape)), math.prod(shape))):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
            found, again = compiled(x), compiled(x)
            assert all(torch.equal(bits(a), bits(b)) for a, b in zip(tensors_of(found), tensors_of(again), strict=True))
            for results in zip(errors.values(), found, all_of_them(x), all_of_them(x.double()), strict=True):
                (ours, theirs), actual, expected, exact = results
                ours.add(actual, exact)
                theirs.add(expected, exact)
        for name, (ours, theirs) in errors.items():
            wrong += [
                f"{name} at {shape}, result {i}: error {mine:.3g}, eager's {other:.3g}"
                for i, (mine, other) in enumerate(zip(ours.each(), theirs.each(), strict=True))
                if not accurate(mine, other, dtype)
            ]
    assert not wrong, "\n".join(wrong)


def bits(x: Tensor) -> Tensor:
    return x.reshape(-1).view(torch.uint8)


def test_a_value_is_rounded_the_same_wherever_it_is_computed() -> None:
    """What is largest minus the largest is 0, also where both compute the product."""

    def below_the_largest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product = x * y
        return (product - product.amax(-1, keepdim=True)).amax(-1)

    compiled = symshape.compile(below_the_largest)
    for columns in (33, 1, 100):
        assert (compiled(torch.rand(50, columns), torch.rand(50, columns)) == 0).all()
