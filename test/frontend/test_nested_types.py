"""``isinstance`` with a tuple of types that has tuples among its elements."""

from __future__ import annotations

import numbers
from typing import Any

import torch

import symshape
from symshape.tools.measure import Graphs

SEQUENCES = (list, (tuple, dict))


def _kinds(x: torch.Tensor, shear: Any) -> Any:
    if not isinstance(shear, (numbers.Number, (list, tuple))):
        raise TypeError("shear should be a single value or a list or tuple")
    found = isinstance(x, (int, (torch.Tensor, list))), isinstance(shear, SEQUENCES), isinstance(shear, (str, ()))
    return x * (shear[0] if isinstance(shear, SEQUENCES) else shear), found


def test_elements_of_tuples_are_asked() -> None:
    compiled = symshape.compile(_kinds, fullgraph=True)
    for n in (4, 3):
        x = torch.randn(n)
        for shear in (2, [3.0], (2, 1)):
            found, expected = compiled(x, shear), _kinds(x, shear)
            assert torch.equal(found[0], expected[0])
            assert found[1] == expected[1]
    torch._dynamo.reset()


def test_plain_torch_compile() -> None:
    compiled = torch.compile(_kinds, backend="symshape")
    with Graphs() as graphs:
        assert torch.equal(compiled(torch.ones(3), [2.0])[0], torch.full((3,), 2.0))
    assert (graphs.graphs, sum(graphs.breaks.values())) == (1, 0)
    torch._dynamo.reset()
