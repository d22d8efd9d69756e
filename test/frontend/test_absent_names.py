"""Keys and attributes that were absent when a function was traced, and are there at a later call."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape

_MODULE = types.ModuleType("settings")


def _of_key(x: Tensor, options: dict[str, Any]) -> Tensor:
    try:
        return x * options["k"]
    except KeyError:
        return x - 1


def _of_nested_key(x: Tensor, options: dict[str, Any]) -> Tensor:
    try:
        return x * options["inner"]["k"]
    except KeyError:
        return x - 1


def _of_chain(x: Tensor, options: dict[str, Any]) -> Tensor:
    return x * collections.ChainMap(options, {"k": 4.0})["k"]


def _of_attribute(x: Tensor, owner: Any) -> Tensor:
    try:
        return x * owner.k
    except AttributeError:
        return x - 1


def _of_module(x: Tensor, _: Any) -> Tensor:
    try:
        return x * _MODULE.k
    except AttributeError:
        return x - 1


class _Plain:
    pass


class _OfClass:
    k = 5.0


class _OfProperty:
    @property
    def k(self) -> float:
        return self.set_later  # type: ignore[attr-defined, no-any-return]


def _with(owner: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(owner, name, value)
    return owner


CASES: dict[str, tuple[Callable[[Tensor, Any], Tensor], tuple[Callable[[], Any], ...]]] = {
    "key": (_of_key, (dict, lambda: {"k": 3.0}, lambda: {"k": 4.0, "other": 1.0}, lambda: {"other": 1.0})),
    "ordered": (_of_key, (collections.OrderedDict, lambda: collections.OrderedDict(k=3.0))),
    "without a default": (
        _of_key,
        (lambda: collections.defaultdict(None), lambda: collections.defaultdict(None, k=3.0), lambda: {"k": 5.0}),
    ),
    "nested": (_of_nested_key, (lambda: {"inner": {}}, lambda: {"inner": {"k": 5.0}}, dict)),
    "chain": (_of_chain, (dict, lambda: {"k": 5.0})),
    "object": (_of_attribute, (_Plain, lambda: _with(_Plain(), k=5.0), _OfClass)),
    "class": (_of_attribute, (lambda: _Plain, lambda: _OfClass)),
    "property": (_of_attribute, (_OfProperty, lambda: _with(_OfProperty(), set_later=3.0))),
    "namespace": (_of_attribute, (types.SimpleNamespace, lambda: types.SimpleNamespace(k=5.0))),
    "tensor": (_of_attribute, (lambda: torch.ones(2), lambda: _with(torch.ones(2), k=5.0))),
    "layer": (_of_attribute, (nn.ReLU, lambda: _with(nn.ReLU(), k=5.0))),
    "module": (_of_module, (lambda: None, lambda: _with(_MODULE, k=5.0) and None)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_there_later_is_read(name: str) -> None:
    program, owners = CASES[name]
    vars(_MODULE).pop("k", None)
    compiled = symshape.compile(program)
    for size in (3, 1, 0):
        for make in owners:
            owner, x = make(), torch.randn(size)
            torch.testing.assert_close(compiled(x, owner), program(x, owner))


def test_an_attribute_of_the_layer_itself() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return _of_attribute(x, self)

    module = Scaled()
    compiled = symshape.compile(module)
    for scale in (None, 3.0, nn.Parameter(torch.tensor(2.0))):
        if scale is not None:
            vars(module).pop("k", None)
            module.k = scale
        for size in (3, 1, 0):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), module(x))
