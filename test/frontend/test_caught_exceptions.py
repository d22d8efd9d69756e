"""Exceptions that a traced function catches: their texts, and those of questions for packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape


class _Named(Exception):
    def __str__(self) -> str:
        return f"named {self.args[0]}"


class _Plain(Exception):
    pass


def _caught(error: Callable[[], Exception]) -> Callable[[torch.Tensor], Any]:
    def function(x: torch.Tensor) -> Any:
        try:
            if x.dim() == 2:
                raise error()
        except Exception as found:
            return x * 2, str(found), f"{found}"
        return x, "", ""

    return function


@pytest.mark.parametrize(
    "error",
    [
        lambda: _Named("a"),
        lambda: _Plain("a"),
        lambda: _Plain(),
        lambda: _Plain("a", 2),
        lambda: KeyError("a"),
        lambda: KeyError(),
        lambda: KeyError("a", 1),
        lambda: ValueError("a"),
        lambda: OSError(2, "no file", "name"),
    ],
)
def test_the_text_of_a_caught_exception(error: Callable[[], Exception]) -> None:
    torch._dynamo.reset()
    function = _caught(error)
    compiled = symshape.compile(function)
    for size in (3, 2, 1, 0):
        x = torch.randn(size, 2)
        ours, theirs = compiled(x), function(x)
        torch.testing.assert_close(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]


def _asks(x: torch.Tensor) -> Any:
    try:
        version = importlib.metadata.version("symshape_absent")
    except importlib.metadata.PackageNotFoundError as error:
        version = error.args[0]
    try:
        found = importlib.util.find_spec("symshape_absent.part") is not None
    except ModuleNotFoundError:
        found = None
    return x * 2, version, found, importlib.util.find_spec("torch") is not None


@pytest.mark.skipif(torch.__version__ < "2.13", reason="Dynamo breaks the graph at the question")
def test_packages_that_are_absent() -> None:
    torch._dynamo.reset()
    compiled = symshape.compile(_asks, fullgraph=True)
    for size in (3, 2, 1, 0):
        x = torch.randn(size, 2)
        ours, theirs = compiled(x), _asks(x)
        torch.testing.assert_close(ours[0], theirs[0])
        assert ours[1:] == theirs[1:] == ("symshape_absent", None, True)

    def not_caught(x: torch.Tensor) -> Any:
        return x * 2, importlib.metadata.version("symshape_absent")

    with pytest.raises(importlib.metadata.PackageNotFoundError, match="symshape_absent"):
        symshape.compile(not_caught)(torch.ones(3))


def _viewed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    try:
        return x.view(4, -1).sum(1)
    except RuntimeError:
        return x.sum(1) - 1


def _multiplied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    try:
        result = x @ y
    except RuntimeError as error:
        result = x * len(str(error))
    return result + 1


@pytest.mark.parametrize("function", [_viewed, _multiplied])
@pytest.mark.parametrize("sizes", [(4, 8, 3, 1, 0), (7, 4, 2)])
def test_an_error_of_a_call_that_the_function_catches(function: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    compiled = symshape.compile(function)
    for size in sizes:
        x, y = torch.randn(size, size % 3 + 1), torch.randn(2, 5)
        torch.testing.assert_close(compiled(x, y), function(x, y))
