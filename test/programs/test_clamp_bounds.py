"""Clamps by integers that the tensor's type cannot hold: what eager mode does with them differs from version to version
of PyTorch (-1 is 255 among bytes, or no bound, or an error)."""

from __future__ import annotations

from collections.abc import Callable

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


SIZES = (7, 1, 0)
DTYPES = (torch.uint8, torch.int8, torch.int32, torch.int64)


def of_size(size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(size).mul(29).sub(30).to(dtype)


def refused(form: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> bool:
    try:
        form(x)
    except RuntimeError:
        return True
    return False


def forms_that_eager_mode_refuses(dtype: torch.dtype) -> list[str]:
    """At every size alike: what it looks at are the bounds and the type."""
    at_sizes = [[name for name, form in FORMS.items() if refused(form, of_size(n, dtype))] for n in SIZES]
    assert at_sizes[0] == at_sizes[1] == at_sizes[2]
    return at_sizes[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equals_eager(dtype: torch.dtype) -> None:
    """Forms that eager mode has a result of are compiled as one function."""
    names = [name for name in FORMS if name not in forms_that_eager_mode_refuses(dtype)]

    def forms(x: torch.Tensor) -> list[torch.Tensor]:
        return [FORMS[name](x) for name in names]

    torch._dynamo.reset()
    for compiled in (symshape.compile(forms), symshape.jit(forms)):
        for size in SIZES:
            x = of_size(size, dtype)
            for name, got, expected in zip(names, compiled(x), forms(x), strict=True):
                assert got.equal(expected), f"{name} of {dtype} at size {size}: {got} instead of {expected}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_refused_like_eager(dtype: torch.dtype) -> None:
    for name in forms_that_eager_mode_refuses(dtype):
        torch._dynamo.reset()
        for compiled in (symshape.compile(FORMS[name]), symshape.jit(FORMS[name])):
            assert all(refused(compiled, of_size(size, dtype)) for size in SIZES), name
