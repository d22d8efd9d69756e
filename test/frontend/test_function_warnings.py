"""Warnings of functions in a graph: as often as in eager mode at the first call, and with its words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.frontend.patches.python.function_warnings import with_numbers


def _losses(x: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(x, x[:, :1]) + F.l1_loss(x, x[:, :1])


def _of_another_size(x: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(torch.cat([x, x]), x[:1])


def _without_dim(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x)


def _said(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[tuple[type, str]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(x).sum().backward()
    return [(one.category, str(one.message)) for one in found]


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
@pytest.mark.parametrize("function", [_losses, _of_another_size, _without_dim])
def test_a_warning_is_given_once_and_has_numbers(wrap: Callable[..., Any], function: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    x = torch.randn(7, 3, requires_grad=True)
    assert _said(wrap(function), x) == _said(function, x) != []


def test_a_warning_names_the_users_line() -> None:
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        symshape.compile(_losses)(torch.randn(7, 3))
    assert {(one.filename, one.lineno) for one in found} == {(__file__, _losses.__code__.co_firstlineno + 1)}


def test_numbers_of_symbols() -> None:
    hints = {"s77": 7, "s27": 3}
    assert with_numbers("[2*s77, 3, s77 + s27] s27 u0 s5", hints) == "[14, 3, 10] 3 u0 s5"
    assert with_numbers("[2*3, u0]", hints) == "[2*3, u0]"
    assert with_numbers("[s77//2, u0 + s77, (s27]", hints) == "[3, u0 + 7, (3]"
