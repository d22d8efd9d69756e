"""Calls that are an error in eager mode are one under non-strict compiles too, where failures of tracing fall back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape

Tensors = tuple[torch.Tensor, ...]
# The function, inputs that it takes, inputs that it refuses.
CASES: dict[str, tuple[Callable[..., Any], Tensors, Tensors]] = {
    "diagonal": (
        lambda x, y: x.diagonal_scatter(y),
        (torch.zeros(4, 4), torch.ones(4)),
        (torch.zeros(4, 4), torch.ones(3)),
    ),
    "interpolation": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"),
        (torch.ones(2, 3, 4),),
        (torch.zeros(2, 3, 0),),
    ),
    "division": (lambda x, y: y * (1 / x.shape[0]), (torch.ones(5), torch.ones(3)), (torch.ones(0), torch.ones(3))),
}


@pytest.mark.parametrize("refused_first", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_refused_without_strict(name: str, refused_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_STRICT", "0")
    torch._dynamo.reset()
    function, taken, refused = CASES[name]
    compiled = symshape.compile(function, strict=False)
    for inputs in (refused, taken) if refused_first else (taken, refused):
        if inputs is taken:
            torch.testing.assert_close(compiled(*inputs), function(*inputs))
            continue
        for f in (function, compiled):
            with pytest.raises(Exception):  # noqa: B017 - Dynamo gives eager mode's error another type
                f(*inputs)
