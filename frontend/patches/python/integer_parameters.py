"""Replaces functions whose C++ would make a size constant by functions of ours, when Dynamo adds them to its graph."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.utils import proxy_args_kwargs
from torch._dynamo.variables import BuiltinVariable, ConstantVariable, SymNodeVariable, TensorVariable
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.lists import SliceVariable, TupleVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.utils._pytree import tree_map_only

from symshape.frontend.bridge.fake_tensors import is_batched
from symshape.frontend.decompositions.integer_parameters import GET_ITEM, REPLACEMENTS, SET_ITEM, Replacement
from symshape.frontend.decompositions.tensor_items import elements_of, selections
from symshape.frontend.patches.patch import Changes


def functions_take_sizes(changes: Changes) -> None:
    """Traces the functions and methods in ``REPLACEMENTS`` as their replacements."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_functions)
    changes.wrap(TensorVariable, "call_method", _of_methods)
    changes.wrap(BuiltinVariable, "call_function", _of_items)
    changes.wrap(TensorVariable, "method___setitem__", _of_written_items)


@functools.cache
def _of_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        found = _replaced(REPLACEMENTS.get(self.value), tx, args, kwargs)
        return original(self, tx, args, kwargs) if found is None else found

    return call_function


@functools.cache
def _of_methods(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        method = REPLACEMENTS.get(getattr(torch.Tensor, name, None)) if name in _METHODS else None
        found = _replaced(method, tx, (self, *args), kwargs)
        return original(self, tx, name, args, kwargs) if found is None else found

    return call_method


_ITEMS = ("__getitem__", "__setitem__")
_METHODS = frozenset(
    function.__name__
    for function in REPLACEMENTS
    if hasattr(torch.Tensor, function.__name__) and function.__name__ not in _ITEMS
)


@functools.cache
def _of_items(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if self.fn is operator.getitem and len(args) == 2 and isinstance(args[0].realize(), TensorVariable):
            x, key = _value(args[0]), _shown(args[1])
            # for a view inside of vmap PyTorch cannot compute a data-dependent storage offset
            begins_anywhere = is_batched(x) and any(isinstance(one, torch.Tensor) for one in elements_of(key))
            if GET_ITEM.applies((x, key), kwargs) and not begins_anywhere:
                view, rest = _selected(tx, *args)
                return original(self, tx, [view, TupleVariable(rest)], kwargs) if rest else view
        return original(self, tx, args, kwargs)

    return call_function


@functools.cache
def _of_written_items(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method___setitem__(self: Any, tx: Any, key: Any, value: Any) -> Any:
        if not SET_ITEM.applies((_value(self), _shown(key)), {}):
            return original(self, tx, key, value)
        result = _called(SET_ITEM, tx, (self, key, value), {})
        self.synchronize_attributes(tx)  # the written value may require a gradient
        return result

    return method___setitem__


def _selected(tx: Any, x: Any, key: Any) -> tuple[Any, list[Any]]:
    """Applies the data-dependent indices of a key; returns the view and the other elements. Each view is a node of its
    own, because its storage offset needs an unbacked symbol."""
    key = key.realize()
    elements = list(key.items) if isinstance(key, TupleVariable) else [key]
    chosen = selections(_value(x).dim(), elements_of(_shown(key)))
    for dim, number in chosen:
        index = elements[number].realize()
        if isinstance(index, TensorVariable):
            index = index.call_method(tx, "item", [], {})
        given = proxy_args_kwargs([x, ConstantVariable.create(dim), index], {})
        x = wrap_fx_proxy(tx, tx.output.create_proxy("call_function", torch.select, *given))
    numbers = {number for _, number in chosen}
    return x, [one for number, one in enumerate(elements) if number not in numbers]


def _shown(key: Any) -> Any:
    """A key to inspect: tensors, sizes and constants; slices as ``slice(None)``, since reading one guards sizes."""
    one = key.realize()
    if isinstance(one, TupleVariable):
        return tuple(map(_shown, one.items))
    shown = isinstance(one, (TensorVariable, SymNodeVariable, ConstantVariable))
    return _value(one) if shown else slice(None) if isinstance(one, SliceVariable) else []


def _replaced(replacement: Replacement | None, tx: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The variable of a call of the replacement; None if there is none or it does not apply."""
    if replacement is None:
        return None
    given = [_value(variable) for variable in args], {name: _value(one) for name, one in kwargs.items()}
    return _called(replacement, tx, args, kwargs) if replacement.applies(*given) else None


def _called(replacement: Replacement, tx: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    proxy = tx.output.create_proxy("call_function", replacement.function, *proxy_args_kwargs(args, kwargs))
    return wrap_fx_proxy(tx, proxy)


def _value(variable: Any) -> Any:
    """The constant, fake tensor or symbolic size of a variable, or a list of these."""
    one = variable.realize()
    if one.is_python_constant():
        return one.as_python_constant()
    return tree_map_only(torch.fx.Proxy, lambda proxy: proxy.node.meta.get("example_value"), one.as_proxy())
