"""Integer bounds that numbers of the type cannot be. What eager mode does with them differs from version to version of
PyTorch: -1 is 255 among bytes, or no bound, or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape

FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "below": lambda x: x.clamp(min=-(2**40)),
    "a little below": lambda x: x.clamp(-1 if x.dtype == torch.uint8 else -130),
    "above": lambda x: x.clamp(max=2**40),
    "a little above": lambda x: x.clamp(3, 300),
    "both": lambda x: x.clamp(-(2**40), 2**40),
    "no number left": lambda x: x.clamp(min=2**40),
    "clamp_min": lambda x: torch.clamp_min(x, -2),
    "clamp_max": lambda x: torch.clamp_max(x, -2),
    "hardtanh": lambda x: F.hardtanh(x, -2, 2),
    "in place": lambda x: (x + 1).clamp_(-5, 260),
}


def outcome(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    try:
        return fn(x)
    except RuntimeError:
        return RuntimeError


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int32, torch.int64), ids=str)
def test_equals_eager(dtype: torch.dtype) -> None:
    for name, form in FORMS.items():
        torch._dynamo.reset()
        for compiled in (symshape.compile(form), symshape.jit(form)):
            for size in (7, 1, 0):
                x = torch.arange(size).mul(29).sub(30).to(dtype)
                expected, got = outcome(form, x), outcome(compiled, x)
                same = got is expected if expected is RuntimeError else torch.is_tensor(got) and got.equal(expected)
                assert same, f"{name} of {dtype} at size {size}: {got} instead of {expected}"
