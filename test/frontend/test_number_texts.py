"""Texts of numbers that are symbols: they are those of eager mode, and graphs are not left to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.tools.measure import Graphs

Tensor = torch.Tensor
SIZES = (3, 4, 1)
COUNT, SHARE, BOTH, SUM = "%d", "%5.2f of %s", "%04d, %d", "%.2f"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _specified(x: Tensor) -> Any:
    n = x.shape[0]
    return x.cos(), f"{n:04d}|{n / 2:.3f}|{n!r:4}|{n:4}|{n}"


def _filled(x: Tensor) -> Any:
    n = x.shape[0]
    return x.cos(), COUNT % n, SHARE % (n / 2, x.shape), BOTH % x.shape


def _caught(x: Tensor) -> Any:
    try:
        text = COUNT % x.shape[0]
    except TypeError:
        text = "no number"
    return x.cos(), text


@pytest.mark.parametrize("program", [_specified, _filled, _caught], ids=lambda program: program.__name__)
def test_sizes(program: Any) -> None:
    compiled = torch.compile(program, backend="symshape", fullgraph=True)
    for n in SIZES:
        x = torch.ones(n, 2)
        found, expected = compiled(x), program(x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]


def test_numbers_from_the_data() -> None:
    """What comes before the text and after it is compiled."""

    def program(x: Tensor) -> Any:
        y = x.sin() * 2
        text = SUM % y.sum().item()
        return y.cos() + 1, text

    compiled = symshape.compile(program)
    with Graphs() as graphs:
        for n in SIZES:
            x = torch.ones(n)
            found, expected = compiled(x), program(x)
            torch.testing.assert_close(found[0], expected[0])
            assert found[1] == expected[1]
    assert graphs.graphs > 0
