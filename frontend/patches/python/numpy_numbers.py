"""Functions of numpy on sizes: ``int(np.ceil(h / 7))``, ``np.prod(x.shape)``, ``np.sqrt(x.shape[-1])``.

Dynamo makes arrays of their arguments, for which it guards on the value of each size: a graph for each. Of numbers they
are Python's own functions, which have symbolic results. What numpy returns is a number of a type of its own
(``float64``, ``int64``); in the graph it is a ``float`` or an ``int`` of the same value, until it is asked for what
they lack, and a number of numpy again where it leaves the graph.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.variables import (
    BaseListVariable,
    BuiltinVariable,
    ConstantVariable,
    SymNodeVariable,
    VariableTracker,
)
from torch._dynamo.variables.misc import NumpyVariable
from torch.fx.experimental.symbolic_shapes import statically_known_true

from symshape.frontend.bridge.symbolic_sizes import is_unbacked
from symshape.frontend.patches.patch import Changes

Rule = Callable[[Any, list[Any]], Any]  # of the translator and the arguments; None for arguments that it is not for
_IS_NUMPYS = "symshape_number_of_numpy"  # in the meta data of a node


def numpy_takes_sizes(changes: Changes) -> None:
    """Traces functions of numpy on symbolic numbers as Python's functions, and the conversions of their results."""
    changes.wrap(NumpyVariable, "call_function", _of_functions)
    changes.wrap(SymNodeVariable, "call_method", _of_methods)
    changes.wrap(BuiltinVariable, "call_function", _of_operations)
    changes.wrap(PyCodegen, "__call__", _of_values)


@functools.cache
def _of_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        rule = None if kwargs else _RULES.get(self.value)
        given = [arg.realize() for arg in args] if rule is not None else []
        found = rule(tx, given) if rule is not None else None
        if found is not None:
            return found if any(found is one for one in given) else _marked(found)
        return original(self, tx, args, kwargs)

    return call_function


@functools.cache
def _of_operations(original: Callable[..., Any]) -> Callable[..., Any]:
    """``1 / np.prod(x.shape)``, which is infinite where Python has an error: that the divisor is 0 is a guard. What is
    computed of numbers of numpy is one too."""

    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = [arg.realize() for arg in args] if self.fn in _OPERATIONS else []
        if not any(map(_is_numpys, given)):
            return original(self, tx, args, kwargs)
        if self.fn in _QUOTIENTS and _is_numpys(given[1]) and _numbers(given) and bool(given[1].sym_num == 0):
            numbers = [_number(one) for one in given]
            value, integers = float(numbers[0]), all(map(_is_integer, numbers))
            if self.fn is operator.truediv or (self.fn is operator.floordiv and not integers):
                return ConstantVariable.create(math.copysign(math.inf, value) if value else math.nan)
            return ConstantVariable.create(0 if integers else math.nan)
        return _marked(original(self, tx, args, kwargs))

    return call_function


@functools.cache
def _of_methods(original: Callable[..., Any]) -> Callable[..., Any]:
    """``np.ceil(n / 2).astype(int)`` and ``np.prod(x.shape).item()``: methods that numbers of numpy have. Others are
    those of an array."""

    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if not _is_numpys(self) or hasattr(float, name):
            return original(self, tx, name, args, kwargs)
        if name == "item" and not args and not kwargs:
            return self
        if name == "astype" and len(args) == 1 and not kwargs and args[0].is_python_constant():
            kind = _CONVERSIONS.get(args[0].as_python_constant())
            if kind is not None:
                return _call(tx, kind, [self])
        return _as_array(tx, self).call_method(tx, name, args, kwargs)

    return call_method


@functools.cache
def _of_values(original: Callable[..., Any]) -> Callable[..., Any]:
    """What a frame returns, or hands on at a graph break, is a number of numpy again."""

    @functools.wraps(original)
    def __call__(self: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        if not _is_numpys(value):
            return original(self, value, *args, **kwargs)
        name = "int64" if isinstance(value.sym_num, torch.SymInt) else "float64"
        self.add_push_null(lambda: self.load_import_from("numpy", name))
        self.clear_tos()
        original(self, value, *args, **kwargs)
        self.call_function(1, False)
        self.clear_tos()

    return __call__


def _is_numpys(variable: Any) -> bool:
    node = _node(variable)
    return node is not None and _IS_NUMPYS in node.meta


def _marked(variable: Any) -> Any:
    node = _node(variable)
    if node is not None:
        node.meta[_IS_NUMPYS] = True
    return variable


def _node(variable: Any) -> torch.fx.Node | None:
    """The node of a symbolic number; None for others, and for a number that Dynamo knows by now."""
    proxy = variable.as_proxy() if isinstance(variable, SymNodeVariable) else None
    return proxy.node if isinstance(proxy, torch.fx.Proxy) else None


def _as_array(tx: Any, variable: Any) -> Any:
    """The array that Dynamo makes of the number; its value is a guard."""
    return NumpyVariable(np.array).call_function(tx, [variable], {})


def _call(tx: Any, function: Callable[..., Any], args: list[Any]) -> Any:
    return VariableTracker.build(tx, function).call_function(tx, args, {})


def _number(variable: Any) -> Any:
    """The number of a variable: a constant, or a symbolic number of sizes of inputs; None for anything else."""
    if isinstance(variable, SymNodeVariable):
        number = variable.sym_num
        return None if isinstance(number, torch.SymBool) or is_unbacked(number) else number
    found = variable.as_python_constant() if isinstance(variable, ConstantVariable) else None
    return found if type(found) in (int, float) else None


def _numbers(variables: Sequence[Any]) -> list[Any] | None:
    """Their numbers, if all are, and one is symbolic."""
    found = [_number(one) for one in variables]
    symbolic = any(isinstance(one, (torch.SymInt, torch.SymFloat)) for one in found)
    return found if symbolic and all(one is not None for one in found) else None


def _is_integer(number: Any) -> bool:
    return isinstance(number, (int, torch.SymInt))


def _rounded(numpys: Any, function: Callable[..., Any]) -> Rule:
    """Of ``ceil`` and the like, which have a float of a float, and what numpy's version has of an integer."""
    keeps_integers = isinstance(numpys(1), np.integer)

    def rule(tx: Any, args: list[Any]) -> Any:
        numbers = _numbers(args) if len(args) == 1 else None
        if numbers is None:
            return None
        found = args[0] if _is_integer(numbers[0]) else _call(tx, function, args)
        return found if keeps_integers and _is_integer(numbers[0]) else _call(tx, float, [found])

    return rule


def _where(function: Callable[..., Any], allowed: Callable[[Any], bool]) -> Rule:
    """A function of ``math`` that has an error where numpy has a warning: for numbers that are known to be allowed."""

    def rule(tx: Any, args: list[Any]) -> Any:
        numbers = _numbers(args) if len(args) == 1 else None
        return _call(tx, function, args) if numbers and statically_known_true(allowed(numbers[0])) else None

    return rule


def _of_two(function: Callable[..., Any], divides: bool = False) -> Rule:
    """An operation on two numbers of one type. A divisor is a constant that is not 0, where numpy has a warning."""

    def rule(tx: Any, args: list[Any]) -> Any:
        numbers = _numbers(args) if len(args) == 2 else None
        if numbers is None or _is_integer(numbers[0]) != _is_integer(numbers[1]):
            return None
        if divides and (not isinstance(numbers[1], (int, float)) or numbers[1] == 0):
            return None
        return _call(tx, function, args)

    return rule


def _of_all(function: Callable[..., Any]) -> Rule:
    """A reduction of a list of integers."""

    def rule(tx: Any, args: list[Any]) -> Any:
        one = args[0] if len(args) == 1 and isinstance(args[0], BaseListVariable) else None
        items = [item.realize() for item in one.items] if one is not None else []
        numbers = _numbers(items)
        if numbers is None or not all(map(_is_integer, numbers)):
            return None
        return functools.reduce(lambda a, b: _call(tx, function, [a, b]), items)

    return rule


def _itself(tx: Any, args: list[Any]) -> Any:
    numbers = _numbers(args) if len(args) == 1 else None
    return args[0] if numbers is not None and _is_integer(numbers[0]) else None


_RULES: Final[Mapping[Any, Rule]] = {
    np.ceil: _rounded(np.ceil, math.ceil),
    np.floor: _rounded(np.floor, math.floor),
    np.trunc: _rounded(np.trunc, math.trunc),
    np.rint: _rounded(np.rint, round),
    np.round: _rounded(np.round, round),
    np.sqrt: _where(math.sqrt, lambda number: number >= 0),
    np.log: _where(math.log, lambda number: number > 0),
    np.log2: _where(math.log2, lambda number: number > 0),
    np.maximum: _of_two(max),
    np.minimum: _of_two(min),
    np.add: _of_two(operator.add),
    np.subtract: _of_two(operator.sub),
    np.multiply: _of_two(operator.mul),
    np.remainder: _of_two(operator.mod, divides=True),  # which np.mod is
    np.floor_divide: _of_two(operator.floordiv, divides=True),
    np.prod: _of_all(operator.mul),
    np.sum: _of_all(operator.add),
    np.max: _of_all(max),
    np.min: _of_all(min),
    np.int64: _itself,
}
_QUOTIENTS: Final = (operator.truediv, operator.floordiv, operator.mod)
_OPERATIONS: Final = (*_QUOTIENTS, operator.add, operator.sub, operator.mul, operator.pow, operator.neg, abs)
_CONVERSIONS: Final[Mapping[Any, Callable[..., Any]]] = {
    int: int,
    np.int64: int,
    "int": int,
    "int64": int,
    float: float,
    np.float64: float,
}
