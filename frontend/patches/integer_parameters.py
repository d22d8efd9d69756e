"""Where Dynamo puts a function into its graph that would make a number of a size, it puts our function there."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.utils import proxy_args_kwargs
from torch._dynamo.variables import BuiltinVariable, ConstantVariable, SymNodeVariable, TupleVariable
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.utils._pytree import tree_map_only

from symshape.frontend.decompositions.integer_parameters import REPLACEMENTS, Replacement
from symshape.frontend.decompositions.symbolic_indices import is_symbolic, selections
from symshape.frontend.patches.patch import Changes


def sizes_are_taken(changes: Changes) -> None:
    """Functions and methods of the table are traced as the functions that stand for them."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_functions)
    changes.wrap(TensorVariable, "call_method", _of_methods)
    changes.wrap(BuiltinVariable, "call_function", _of_indices)
    changes.wrap(TensorVariable, "method___setitem__", _of_writes)


@functools.cache
def _of_functions(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        found = _replaced(REPLACEMENTS.get(self.value), tx, args, kwargs)
        return usual(self, tx, args, kwargs) if found is None else found

    return call_function


@functools.cache
def _of_methods(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        method = REPLACEMENTS.get(getattr(torch.Tensor, name, None)) if name in _METHODS else None
        found = _replaced(method, tx, (self, *args), kwargs)
        return usual(self, tx, name, args, kwargs) if found is None else found

    return call_method


@functools.cache
def _of_indices(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn is not operator.getitem or not _is_symbolic_index(*args):
            return usual(self, tx, args, kwargs)
        view, rest = _selected(tx, args[0], args[1])
        return usual(self, tx, [view, TupleVariable(rest)], {}) if rest else view

    return call_function


@functools.cache
def _of_writes(usual: Callable[..., Any]) -> Callable[..., Any]:
    """A view is written to, and what that has changed of the tensor is noted of it too, by versions that note it."""

    @functools.wraps(usual)
    def setitem(self: Any, tx: Any, key: Any, value: Any) -> Any:
        if not _is_symbolic_index(self, key):
            return usual(self, tx, key, value)
        noted = getattr(self, "_sync_if_inplace_mutation", None)
        before = self._get_fake_version() if noted else None
        view, rest = _selected(tx, self, key)
        usual(view, tx, TupleVariable(rest or [ConstantVariable.create(...)]), value)
        if noted:
            noted(tx, before, value.is_tensor())
        return ConstantVariable.create(None)

    return setitem


def _is_symbolic_index(x: Any, key: Any) -> bool:
    """Whether a tuple has a size among its indices. (Dynamo itself selects by one that is alone.)"""
    if type(x) is not TensorVariable or not isinstance(key := key.realize(), TupleVariable):
        return False
    return any(isinstance(one.realize(), SymNodeVariable) for one in key.items) and is_symbolic((None, _value(key)), {})


def _selected(tx: Any, x: Any, key: Any) -> tuple[Any, list[Any]]:
    """The variable of the view by the sizes of an index, and the variables of the rest of it. Each selection is a node:
    where its place is in the data, it makes a symbol."""
    items = key.realize().items
    dims = selections(x.as_proxy().node.meta["example_value"].dim(), _value(key))
    for position, dim in dims.items():
        index = items[position].as_proxy()
        x = wrap_fx_proxy(tx, tx.output.create_proxy("call_function", torch.select, (x.as_proxy(), dim, index), {}))
    return x, [item for position, item in enumerate(items) if position not in dims]


_METHODS = frozenset(function.__name__ for function in REPLACEMENTS if hasattr(torch.Tensor, function.__name__)) - {
    "__getitem__",
    "__setitem__",
}  # these are wrapped by themselves


def _replaced(replacement: Replacement | None, tx: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The variable of a call of our function, or None."""
    if replacement is None:
        return None
    given = [_value(variable) for variable in args], {name: _value(one) for name, one in kwargs.items()}
    if not replacement.applies(*given):
        return None
    proxy = tx.output.create_proxy("call_function", replacement.function, *proxy_args_kwargs(args, kwargs))
    return wrap_fx_proxy(tx, proxy)


def _value(variable: Any) -> Any:
    """A constant, or what the tracer has for a tensor or a size; of several sizes in a list."""
    one = variable.realize()
    if one.is_python_constant():
        return one.as_python_constant()
    return tree_map_only(torch.fx.Proxy, lambda proxy: proxy.node.meta.get("example_value"), one.as_proxy())
