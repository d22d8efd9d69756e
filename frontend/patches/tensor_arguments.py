"""Integers that a program gives as tensors: Dynamo reads them first, where C++ would in the middle of an operator.

What C++ reads in a fake tensor is a new symbol that no result has to show, which PyTorch refuses: ``F.pad(x, (0, n))``
of a tensor n.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.variables import BaseListVariable, LazyVariableTracker
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from symshape.frontend.patches.patch import Changes

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def integers_are_read(changes: Changes) -> None:
    """Tensors that stand where every overload of an operator takes integers are called ``item`` on."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_functions)
    changes.wrap(TensorVariable, "call_method", _of_methods)


@functools.cache
def _of_functions(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        places = _places_of_function(self.value)
        return usual(self, tx, *_with_numbers(tx, places, args, kwargs)) if places else usual(self, tx, args, kwargs)

    return call_function


@functools.cache
def _of_methods(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def call_method(self: Any, tx: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        places = {place - 1 if isinstance(place, int) else place for place in _places(name)}
        return usual(self, tx, name, *_with_numbers(tx, places, args, kwargs))

    return call_method


def _places_of_function(function: Any) -> frozenset[int | str]:
    is_builtin = callable(function) and not hasattr(function, "__code__")
    module = getattr(function, "__module__", None) or "torch"  # functions of torch._C have none
    return _places(getattr(function, "__name__", "")) if is_builtin and module.startswith("torch") else frozenset()


@functools.cache
def _places(name: str) -> frozenset[int | str]:
    """Where an operator of ATen takes integers: positions and names of its parameters."""
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    found: dict[int | str, bool] = {}
    for overload in packet.overloads() if packet is not None else ():
        for position, argument in enumerate(getattr(packet, overload)._schema.arguments):
            is_integer = str(argument.real_type).removeprefix("Optional[").removeprefix("List[").startswith(_KINDS)
            for place in (argument.name,) if argument.kwarg_only else (position, argument.name):
                found[place] = found.get(place, True) and is_integer
    return frozenset(place for place, is_integer in found.items() if is_integer)


_KINDS = ("int", "SymInt", "str")  # a padding may be a word


def _with_numbers(tx: Any, places: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Any]:
    positional = [_read(tx, arg) if place in places else arg for place, arg in enumerate(args)]
    return positional, {name: _read(tx, arg) if name in places else arg for name, arg in kwargs.items()}


def _read(tx: Any, variable: Any) -> Any:
    """A number for a tensor of one, and so in a sequence; the variable itself where there is none."""
    one = variable.realize() if isinstance(variable, LazyVariableTracker) else variable
    if isinstance(one, TensorVariable):
        return one.call_method(tx, "item", [], {}) if one.ndim == 0 and one.dtype in _INTEGERS else variable
    if not isinstance(one, BaseListVariable):
        return variable
    items = [_read(tx, item) for item in one.items]
    return variable if all(a is b for a, b in zip(items, one.items)) else one.clone(items=items)
