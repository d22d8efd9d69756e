"""Number arguments of operators that are sizes, or are computed of sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import symshape

from . import scalar_arguments as programs

TABLE = {**programs.ANY, **programs.FLOATING}
FEW = (
    "index_add",
    "scatter",
    "scatter_many",
    "scatter_add",
    "scatter_multiply",
    "clamp",
    "full",
    "leaky_relu",
    "masked_fill",
)
NUMBERS = {"int": lambda x: x.shape[0], "float": lambda x: x.shape[0] / 4}


def matrix(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(n * (n + 2)).reshape(n, n + 2).sub(2 * n).to(dtype)


def eager_results(names: Sequence[str], number, dtype: torch.dtype) -> list[str]:
    """Those programs that eager mode knows for this type."""
    x, found = matrix(5, dtype), []
    for name in names:
        try:
            TABLE[name](x, number(x))
            found.append(name)
        except (RuntimeError, TypeError):
            pass
    return found


def check(names: Sequence[str], number, dtype: torch.dtype) -> None:
    known = eager_results(names, number, dtype)
    assert len(known) >= len(names) / 2

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [TABLE[name](x, number(x)) for name in known]

    torch._dynamo.reset()
    compiled = symshape.compile(run, fullgraph=True)
    for n in (5, 7, 2):
        x = matrix(n, dtype)
        for name, ours, eager in zip(known, compiled(x), run(x)):
            torch.testing.assert_close(ours, eager, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_some(number, dtype) -> None:
    check([name for name in FEW if dtype.is_floating_point or name in programs.ANY], NUMBERS[number], dtype)


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
@pytest.mark.parametrize("part", range(8))
def test_all(number, dtype, part) -> None:
    names = [name for name in TABLE if dtype.is_floating_point or name in programs.ANY]
    check(names[part::8], NUMBERS[number], dtype)
