"""What a function stores outside of itself, under ``symshape.jit``: an error that names the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape
from symshape.errors import CompileError

_KEPT: list[Tensor] = []
_NAMED: dict[str, Tensor] = {}


class _Owner:
    last: Any = None


class _Layer(nn.Module):
    def __init__(self, keep: Callable[[_Layer, Tensor], Any]) -> None:
        super().__init__()
        self.keep, self.linear, self.last, self.named = keep, nn.Linear(3, 3), None, {}  # type: ignore[var-annotated]

    def forward(self, x: Tensor) -> Tensor:
        self.keep(self, x * 2)
        return self.linear(x)  # type: ignore[no-any-return]


def _append(x: Tensor) -> Tensor:
    _KEPT.append(x.sum())
    return x * 2


def _name(x: Tensor) -> Tensor:
    _NAMED["x"] = x.detach()
    return x * 2


def _set(x: Tensor) -> Tensor:
    _Owner.last = x + 1
    return x * 2


def _once(x: Tensor) -> Tensor:
    if _Owner.last is None:
        _Owner.last = torch.arange(4)
    return x + _Owner.last[0]


def _attribute(layer: _Layer, y: Tensor) -> None:
    layer.last = y  # type: ignore[assignment]


def _item(layer: _Layer, y: Tensor) -> None:
    layer.named["y"] = y


FUNCTIONS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "append": lambda: _append,
    "item": lambda: _name,
    "class": lambda: _set,
    "cache": lambda: _once,
    "attribute of a layer": lambda: _Layer(_attribute),
    "item of a layer": lambda: _Layer(_item),
}


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Any:
    yield
    _KEPT.clear()
    _NAMED.clear()
    _Owner.last = None


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_stored_tensor_is_an_error(name: str) -> None:
    function = FUNCTIONS[name]()
    with pytest.raises(CompileError, match="is stored outside of it") as error:
        symshape.jit(function)(torch.randn(2, 3))
    assert "test_jit_leaks.py:" in error.value.where
    if name.startswith("attribute"):
        assert "as last" in error.value.what


def test_a_stored_argument_is_an_error() -> None:
    kept: list[Tensor] = []

    def program(x: Tensor) -> Tensor:
        kept.append(x)
        return x * 2

    with pytest.raises(CompileError, match="that the function is given is stored outside of it"):
        symshape.jit(program)(torch.randn(2, 3))


def test_a_hook_that_stores_is_an_error() -> None:
    layer = nn.Linear(3, 3)
    handle = layer.register_forward_hook(lambda _module, _inputs, output: _KEPT.append(output))
    with pytest.raises(CompileError, match="is stored outside of it"):
        symshape.jit(layer)(torch.randn(2, 3))
    handle.remove()
    x = torch.randn(2, 3)
    torch.testing.assert_close(symshape.jit(layer)(x), layer(x))


def test_arguments_that_are_containers() -> None:
    def append(x: Tensor, found: list[Tensor]) -> Tensor:
        found.append(x + 1)
        return x * 2

    def replace(x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        cache["k"] = torch.cat([cache["k"], x])
        return cache["k"].sum()

    for function, given in ((append, []), (replace, {"k": torch.zeros(1, 3)})):
        with pytest.raises(CompileError, match="list or dictionary among the arguments is changed"):
            symshape.jit(function)(torch.randn(2, 3), given)  # type: ignore[operator]


def test_tensors_of_containers_are_written_in_place() -> None:
    def write(x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        cache["k"].add_(x)
        return cache["k"] * 2

    jitted = symshape.jit(write)
    for size in (3, 1, 0):
        x, cache, expected = torch.randn(size), {"k": torch.ones(size)}, {"k": torch.ones(size)}
        torch.testing.assert_close(jitted(x, cache), write(x, expected))
        torch.testing.assert_close(cache["k"], expected["k"])


def test_an_attribute_of_an_argument_is_an_error() -> None:
    def mark(x: Tensor) -> Tensor:
        x.scale = 2  # type: ignore[attr-defined]
        return x * 2

    with pytest.raises(CompileError, match="gets the attribute scale"):
        symshape.jit(mark)(torch.randn(2, 3))


def test_an_attribute_of_a_result_is_an_error() -> None:
    def scaled(x: Tensor) -> Tensor:
        y = x * 2
        y.scale = 2  # type: ignore[attr-defined]
        return y

    with pytest.raises(CompileError, match="returns has the attribute scale"):
        symshape.jit(scaled)(torch.randn(2, 3))


def test_attributes_of_what_is_given_stay() -> None:
    weight = torch.randn(3)
    weight.scale = 2  # type: ignore[attr-defined]
    x = torch.randn(2, 3)
    x.scale = 3  # type: ignore[attr-defined]
    jitted = symshape.jit(lambda x: (x, x * 2, weight))
    torch.testing.assert_close(jitted(x), (x, x * 2, weight))


class _Sizes:
    total: Any = 0


def _leaked_sizes() -> dict[str, Callable[[Tensor], Any]]:
    found: list[Any] = []
    named: dict[str, Any] = {}
    owner, layer = _Sizes(), nn.Linear(3, 3)
    return {
        "in a list": lambda x: found.append(x.shape[0]),
        "as n of dict": lambda x: named.update(n=x.shape[0] * 2),
        "as shape of dict": lambda x: named.update(shape=x.shape),
        "as total of _Sizes": lambda x: setattr(owner, "total", x.numel()),
        "as mean of _Sizes": lambda x: setattr(_Sizes, "mean", x.numel() / 2),
        "as rows of Linear": lambda x: setattr(layer, "rows", layer(x).shape[0]),
    }


@pytest.mark.parametrize("where", _leaked_sizes())
def test_a_stored_size_is_an_error(where: str) -> None:
    keep = _leaked_sizes()[where]

    def program(x: Tensor) -> Tensor:
        keep(x)
        return x * 2

    try:
        with pytest.raises(CompileError, match=f"stored outside of the function, {where}"):
            symshape.jit(program)(torch.randn(2, 3))
    finally:
        if "mean" in vars(_Sizes):
            del _Sizes.mean


def test_numbers_that_are_stored_stay() -> None:
    """What is no symbol: a static size, the number of dims."""
    found: dict[str, int] = {}

    def program(x: Tensor) -> Tensor:
        found["dims"], found["columns"] = x.dim(), x.shape[1]
        return x * found["columns"]

    jitted = symshape.jit(program, dynamic_shapes={"x": {1: 3}})
    for rows in (2, 5, 0, 1):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(jitted(x), x * 3)
    assert found == {"dims": 2, "columns": 3} and len(jitted.entries) == 1


def test_cycles_of_the_function_are_no_leaks() -> None:
    class Pair:
        def __init__(self, x: Tensor) -> None:
            self.own, self.x = self, x * 2

    def program(x: Tensor) -> Tensor:
        return Pair(x).x + 1

    jitted = symshape.jit(program)
    for size in (3, 1, 0):
        x = torch.randn(size)
        torch.testing.assert_close(jitted(x), program(x))


def test_a_number_that_must_be_known_has_a_next_step() -> None:
    n = nn.Parameter(torch.tensor(2), requires_grad=False)
    owner = nn.Module()
    owner.n = n

    def known(x: Tensor) -> Tensor:
        return x.repeat(int(owner.n), 1)

    def unknown(x: Tensor) -> Tensor:
        return x.repeat(owner.n.item(), 1)

    x = torch.randn(2, 3)
    with pytest.raises(CompileError, match="a value of a tensor decides") as error:
        symshape.jit(known)(x)
    assert "x.item()" in error.value.next_step and "test_jit_leaks.py:" in error.value.where
    jitted = symshape.jit(unknown)
    for number in (2, 3, 1):
        n.fill_(number)
        torch.testing.assert_close(jitted(x), known(x))
