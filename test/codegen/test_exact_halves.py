"""Signs and selects of bfloat16, which are computed on its bits: every value, in vectors, broadcast and as scalars."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import symshape

EVERY = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "relu": lambda x, y: torch.relu(x),
    "where": lambda x, y: torch.where(x > y, -x, y.abs()),
    "numbers": lambda x, y: torch.where(x > y, x, -0.0),
    "inexact": lambda x, y: torch.where(x > y, x, 0.1),
    "widened": lambda x, y: (-x).float().abs().neg().bfloat16(),
    "rounded": lambda x, y: -(x.float() * 1.001).bfloat16().abs(),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number(name: str) -> None:
    torch._dynamo.reset()
    function = FUNCTIONS[name]
    compiled = symshape.compile(function)
    others = EVERY.flip(0).roll(12345)
    pairs = [(EVERY, others), (EVERY, others[777]), (EVERY[::3], others[::3]), (EVERY[40000], others[5])]
    pairs += [(EVERY[5000 : 5000 + n], others[5000 : 5000 + n]) for n in (0, 1, 15, 17, 31)]
    for x, y in pairs:
        got, expected = compiled(x, y), function(x, y)
        assert got.dtype == expected.dtype == torch.bfloat16
        numbers = ~expected.isnan()
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got[numbers].view(torch.int16), expected[numbers].view(torch.int16))  # and signs of zeros
