"""Tensors with PyTorch's negative bit, whose elements are those in memory times -1: what ``z.conj().imag`` is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape

Function = Callable[..., Any]
COMPILERS = {
    "compile": symshape.compile,
    "backend": lambda f: torch.compile(f, backend="symshape", dynamic=True),
    "jit": symshape.jit,
}
PROGRAMS: dict[str, Function] = {
    "pointwise": lambda x: x * 2,
    "reduction": lambda x: x.sum(0),
    "product": lambda x: x @ x.t(),
    "view": lambda x: x.t()[1:],
    "read by a view": lambda x: x.t()[1:] * 3,
    "returned too": lambda x: (x, x + 1),
    "gathered": lambda x: x[torch.tensor([0, 1])] + 1,
    "two": lambda x: torch.where(x > 0, x, -x).cumsum(0),
    "written to": lambda x: x.add_(1),
}
INSIDE: dict[str, Function] = {
    "pointwise": lambda z: z.conj().imag * 2,
    "reduction": lambda z: (z.conj().imag, z.conj().imag.sum(0)),
    "magnitude": lambda z: (z * z.conj()).real + z.conj().imag.abs(),
}


def made(n: int, negated: bool) -> torch.Tensor:
    """The same elements each time, with the bit or without it."""
    x = torch.arange(3.0 * n).reshape(n, 3).sin()
    return torch._neg_view(-x) if negated else x


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("first", ["plain", "negated"])
def test_an_input_that_is_negated(name: str, compiler: str, first: str) -> None:
    compiled = COMPILERS[compiler](PROGRAMS[name])
    for turn in range(4):
        for n in (3, 5):
            mine, eager = (made(n, (turn % 2 == 0) == (first == "negated")) for _ in range(2))
            torch.testing.assert_close(compiled(mine), PROGRAMS[name](eager))
            torch.testing.assert_close(mine, eager)


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_negative_view_in_a_graph(name: str, compiler: str) -> None:
    compiled = COMPILERS[compiler](INSIDE[name])
    for n in (3, 5, 1):
        z = torch.randn(n, 4, dtype=torch.complex64)
        torch.testing.assert_close(compiled(z), INSIDE[name](z))


def test_graphs_on_disk_know_them(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path))
    for x in (made(4, False), made(4, True)):
        torch._dynamo.reset()
        torch.testing.assert_close(symshape.compile(lambda x: x * 2 + 1)(x), x * 2 + 1)


def test_a_custom_operator_returns_one() -> None:
    @torch.library.custom_op("negative_views::of", mutates_args=())
    def of(x: torch.Tensor) -> torch.Tensor:
        return torch._neg_view(x.clone())

    of.register_fake(lambda x: torch.empty_like(x))
    x = torch.randn(4)
    torch.testing.assert_close(symshape.compile(lambda x: of(x) * 2)(x), x * -2)
