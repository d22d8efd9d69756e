"""Kernels of a graph as one object: equal code is compiled once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape import compiler
from symshape.compiler import Compiled


def function(x: torch.Tensor) -> Any:
    """The same loop over a row, over a column, and with another number in it."""
    row = torch.sort(torch.sin(x) + 1)[0]
    column = torch.sort(torch.sin(row.unsqueeze(1)) + 1, 0)[0]
    return row, column, torch.sort(torch.sin(column[:, 0].sort()[0]) - 0.0)[0], torch.sin(column) + 0.5


def test_kernels_of_equal_text_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles: list[Compiled] = []
    compile_graph = compiler.compile_graph

    def noted(*args: Any, **kwargs: Any) -> Any:
        compiles.append(compile_graph(*args, **kwargs))
        return compiles[-1]

    monkeypatch.setattr(compiler, "compile_graph", noted)
    torch._dynamo.reset()
    compiled = symshape.compile(function, cache=False)
    for size in (5, 1, 0, 33, 1009):
        x = torch.randn(size)
        for expected, actual in zip(function(x), compiled(x), strict=True):
            torch.testing.assert_close(actual, expected)
    (found,) = compiles
    image = found.kernels
    names = [kernel.name for kernel in found.report.kernels]
    assert image.equal and set(image.equal) | set(image.arguments) == set(names)
    assert not set(image.equal) & set(image.arguments) and set(image.equal.values()) <= set(image.arguments)
    sources = {kernel.name: kernel.source for kernel in found.report.kernels}
    for name, other in image.equal.items():
        assert sources[name].replace(name, "") == sources[other].replace(other, "")
    assert len({text.replace(name, "") for name, text in sources.items()}) == len(image.arguments)
