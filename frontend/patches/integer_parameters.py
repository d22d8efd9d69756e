"""Where Dynamo puts a function into its graph that would make a number of a size, it puts our function there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.utils import proxy_args_kwargs
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.utils._pytree import tree_map_only

from symshape.frontend.decompositions.integer_parameters import REPLACEMENTS, Replacement
from symshape.frontend.patches.patch import Changes


def sizes_are_taken(changes: Changes) -> None:
    """Functions and methods of the table are traced as the functions that stand for them."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_functions)
    changes.wrap(TensorVariable, "call_method", _of_methods)


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


_METHODS = frozenset(function.__name__ for function in REPLACEMENTS if hasattr(torch.Tensor, function.__name__))


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
