"""Converts arguments that C++ accepts only as numbers before Dynamo makes the call.

Integers given as tensors: C++ would read a fake tensor as a new symbol that no result binds, which PyTorch rejects
(``F.pad(x, (0, n))`` with a tensor n). Booleans given as comparisons of sizes: C++ accepts no SymBool, so that the
graph would break (``scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)``). Neither do Dynamo's lists and
its ``max``, where Python takes a bool as the integer that it is; nor its ``str`` a number that is a symbol, as the
index of a ``ModuleList`` may be. Lists that are compared read their tensors
(``list(x.shape) == [n, lengths.max()]``).
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.symbolic_convert import compare_op_handlers
from torch._dynamo.variables import (
    BaseListVariable,
    BuiltinVariable,
    ConstantVariable,
    LazyVariableTracker,
    SliceVariable,
    SymNodeVariable,
    VariableTracker,
)
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.patches.patch import Changes

_Make = Callable[[Any, Any], Any]
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def arguments_become_numbers(changes: Changes) -> None:
    """Calls ``item`` on tensors passed where every overload of an operator takes integers. Decides comparisons of sizes
    passed where every overload takes a bool, or Python an integer, by a guard, as an ``if`` would."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_functions)
    changes.wrap(TensorVariable, "call_method", _of_methods)
    changes.wrap(BuiltinVariable, "call_function", _of_builtins)
    # Dynamo has bound the usual method of these when it was imported.
    comparisons = {"is": operator.is_, "is not": operator.is_not, "==": operator.eq, "!=": operator.ne}
    handlers = {name: BuiltinVariable(function).call_function for name, function in comparisons.items()}
    changes.items(compare_op_handlers, handlers)


@functools.cache
def _of_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        places = _number_parameters_of_function(self.value)
        return (
            original(self, tx, *_with_numbers(tx, places, args, kwargs)) if places else original(self, tx, args, kwargs)
        )

    return call_function


@functools.cache
def _of_methods(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        parameters = _number_parameters(name).items()
        places = {place - 1 if isinstance(place, int) else place: make for place, make in parameters}
        if name in _SIZES_ONE_BY_ONE:
            args = [_size(tx, arg) for arg in args]
        return original(self, tx, name, *_with_numbers(tx, places, args, kwargs))

    return call_method


@functools.cache
def _of_builtins(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.fn in (operator.is_, operator.is_not) and any(map(_is_bool, args)):
            args = [_decided(tx, arg) for arg in args]
        elif self.fn in (operator.eq, operator.ne) and all(isinstance(_made(arg), BaseListVariable) for arg in args):
            args = [_integers(tx, arg) for arg in args]
        elif self.fn in (max, min) and not kwargs:
            args = _of_one_kind(tx, [_decided(tx, arg) for arg in args])
        elif self.fn in (str, repr) and len(args) == 1 and not kwargs:
            args = [_number(tx, args[0])]
        elif self.fn in (operator.getitem, operator.setitem) and len(args) > 1:
            args = [args[0], _decided(tx, args[1]), *args[2:]]
        return original(self, tx, args, kwargs)

    return call_function


def _made(variable: Any) -> Any:
    """A variable that Dynamo has made already, in the place of the lazy one around it."""
    made = isinstance(variable, LazyVariableTracker) and variable.is_realized()
    return variable.realize() if made else variable


def _is_bool(variable: Any) -> bool:
    return isinstance(variable, ConstantVariable) and isinstance(variable.as_python_constant(), bool)


def _decided(tx: Any, variable: Any) -> Any:
    """A constant for a comparison of backed sizes, also in a list, tuple or slice; other variables unchanged. The graph
    breaks at one that depends on data."""
    if isinstance(variable, LazyVariableTracker) and not variable.is_realized():
        return variable  # inputs, which are no conditions, keep the order in which Dynamo reads them
    one = variable.realize() if isinstance(variable, LazyVariableTracker) else variable
    if not isinstance(one, (BaseListVariable, SliceVariable)):
        if isinstance(one, SymNodeVariable) and free_unbacked_symbols(one.sym_num):
            if isinstance(one.sym_num, torch.SymBool):
                unimplemented("a condition as a bool of Python", "it depends on data", None)
        return _truth_value(tx, variable)
    items = [_decided(tx, item) for item in one.items]
    return variable if all(a is b for a, b in zip(items, one.items)) else one.clone(items=items)


def _of_one_kind(tx: Any, variables: list[Any]) -> list[Any]:
    """0 and 1 in the place of bools beside symbolic numbers, which are compared with numbers only."""
    if not any(isinstance(one, SymNodeVariable) for one in variables):
        return variables
    return [VariableTracker.build(tx, int(one.as_python_constant())) if _is_bool(one) else one for one in variables]


def _number_parameters_of_function(function: Any) -> Mapping[int | str, _Make]:
    """The parameters of a function of PyTorch that must be numbers, with their conversions; empty for others."""
    module = getattr(function, "__module__", None) or "torch"  # functions of torch._C have none
    if module == "math":
        return {0: _truth_value, 1: _truth_value}
    if not callable(function) or not module.startswith("torch"):
        return _NONE
    if isinstance(function, types.FunctionType):
        return _annotated(function)
    return _number_parameters(getattr(function, "__name__", ""))


@functools.cache
def _annotated(function: types.FunctionType) -> Mapping[int | str, _Make]:
    """The parameters annotated as bool of a Python function of PyTorch that is itself a node of the graph, by position
    and by name."""
    parameters = inspect.signature(function).parameters.values()
    taken = [(place, one.name) for place, one in enumerate(parameters) if one.annotation in (bool, "bool")]
    return {place: _truth_value for pair in taken for place in pair}


@functools.cache
def _number_parameters(name: str) -> Mapping[int | str, _Make]:
    """The parameters of an ATen operator that accept numbers only, by position and by name, with the function that
    converts an argument."""
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):  # the namespace object also has plain methods: __eq__
        return _NONE
    found: dict[int | str, _Make | None] = {}
    for overload in packet.overloads():
        for position, argument in enumerate(getattr(packet, overload)._schema.arguments):
            kind = str(argument.real_type).removeprefix("Optional[").removeprefix("List[")
            make = next((make for kinds, make in _MAKERS if kind.startswith(kinds)), None)
            for place in (argument.name,) if argument.kwarg_only else (position, argument.name):
                found[place] = make if found.get(place, make) is make else None
    return {place: make for place, make in found.items() if make is not None}


def _with_numbers(
    tx: Any, places: Mapping[Any, _Make], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], Any]:
    positional = [places[place](tx, arg) if place in places else arg for place, arg in enumerate(args)]
    return positional, {name: places[name](tx, arg) if name in places else arg for name, arg in kwargs.items()}


def _integers(tx: Any, variable: Any) -> Any:
    """``item()`` of an integer tensor without dims, also inside of lists; other variables unchanged."""
    one = variable.realize() if isinstance(variable, LazyVariableTracker) else variable
    if isinstance(one, TensorVariable):
        if one.ndim != 0 or one.dtype not in _INTEGERS:
            return variable
        quotient = _quotient(tx, one.as_proxy())
        return one.call_method(tx, "item", [], {}) if quotient is None else quotient
    if not isinstance(one, BaseListVariable):
        return variable
    items = [_integers(tx, item) for item in one.items]
    return variable if all(a is b for a, b in zip(items, one.items)) else one.clone(items=items)


def _size(tx: Any, variable: Any) -> Any:
    """The number for a tensor that is a quotient of sizes; other variables unchanged."""
    one = _made(variable)
    quotient = _quotient(tx, one.as_proxy()) if isinstance(one, TensorVariable) else None
    return variable if quotient is None else quotient


def _quotient(tx: Any, proxy: Any) -> Any:
    """The number that is in the result of ``torch.div(n, 8, rounding_mode="trunc")``, a tensor: of sizes it is no
    unbacked symbol, but a quotient. None for any other tensor."""
    node = proxy.node
    if node.target is not torch.div or node.kwargs.get("rounding_mode") not in ("trunc", "floor"):
        return None
    values: list[Any] = [one.meta.get("example_value") if isinstance(one, torch.fx.Node) else one for one in node.args]
    numbers = len(values) == 2 and all(isinstance(one, (int, torch.SymInt)) for one in values)
    if not numbers or not statically_known_true(values[0] >= 0) or not statically_known_true(values[1] > 0):
        return None  # of a negative number the two modes differ
    if all(isinstance(one, int) for one in values):
        return VariableTracker.build(tx, values[0] // values[1])
    args = tuple(torch.fx.Proxy(one, proxy.tracer) if isinstance(one, torch.fx.Node) else one for one in node.args)
    return wrap_fx_proxy(tx, tx.output.create_proxy("call_function", operator.floordiv, args, {}))


def _truth_value(tx: Any, variable: Any) -> Any:
    """A constant for a comparison of backed sizes, by a guard; other variables unchanged."""
    one = variable.realize() if isinstance(variable, LazyVariableTracker) else variable
    if not isinstance(one, SymNodeVariable) or not isinstance(one.sym_num, torch.SymBool):
        return variable
    if free_unbacked_symbols(one.sym_num):  # data-dependent: the graph breaks at the call
        return variable
    return VariableTracker.build(tx, bool(one.evaluate_expr(tx.output)))


def _number(tx: Any, variable: Any) -> Any:
    """A constant for a symbol that does not depend on data, by a guard; other variables unchanged."""
    one = variable.realize() if isinstance(variable, LazyVariableTracker) else variable
    if not isinstance(one, SymNodeVariable) or free_unbacked_symbols(one.sym_num):
        return variable
    return VariableTracker.build(tx, one.evaluate_expr(tx.output))


_SIZES_ONE_BY_ONE = frozenset(("view", "reshape", "expand", "repeat", "tile"))  # methods that take sizes as arguments
_NONE: Mapping[int | str, _Make] = {}
_MAKERS = ((("int", "SymInt", "str"), _integers), (("bool",), _truth_value))  # "str": padding="same" for convolutions
