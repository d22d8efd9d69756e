"""Traces functions of numbers as nodes, where Dynamo would make a size constant: ``math.log(x.shape[0])``."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.utils import proxy_args_kwargs
from torch._dynamo.variables import BuiltinVariable, ConstantVariable, SymNodeVariable, TupleVariable
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.fx.passes import _tensorify_python_scalars
from torch.utils._sympy import interp
from torch.utils._sympy.functions import RoundDecimal, RoundToInt
from torch.utils._sympy.reference import TensorReferenceAnalysis
from torch.utils._sympy.value_ranges import SymPyValueRangeAnalysis, ValueRanges

from symshape.frontend.bridge.number_functions import NumberExpression
from symshape.frontend.decompositions.number_functions import FUNCTIONS, METHODS, ROUND
from symshape.frontend.patches.patch import Changes


def numbers_are_traced(changes: Changes) -> None:
    """Makes the functions in ``FUNCTIONS`` nodes of the graph. Nothing is assumed about the range of their results.
    ``round`` of a size to tens rounds; PyTorch's returns the size."""
    changes.wrap(TorchInGraphFunctionVariable, "call_function", _of_functions)
    changes.wrap(SymNodeVariable, "call_method", _of_methods)
    changes.wrap(BuiltinVariable, "call_function", _of_builtins)
    changes.wrap(torch.SymInt, "__round__", _rounded)
    for module in (interp, _tensorify_python_scalars):
        changes.wrap(module, "_run_sympy_handler", _of_expressions)


@functools.cache
def _of_functions(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        function = None if kwargs or not args else FUNCTIONS.get(self.value)
        if function is None or not _are_symbolic(args):
            return original(self, tx, args, kwargs)
        return _traced(tx, function, args)

    return call_function


@functools.cache
def _of_methods(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        function = METHODS.get(name)
        if function is None or args or kwargs or not _are_symbolic([self]):
            return original(self, tx, name, args, kwargs)
        found = _traced(tx, function, [self])
        # A function in the graph cannot return a bool to Dynamo; it returns an integer, which is compared with 0.
        zero = ConstantVariable.create(0)
        return BuiltinVariable(operator.ne).call_function(tx, [found, zero], {}) if name == "is_integer" else found

    return call_method


@functools.cache
def _of_builtins(original: Callable[..., Any]) -> Callable[..., Any]:
    """``divmod`` becomes two operations, ``operator.index`` of a size the size itself, and ``pow`` of two arguments
    ``**``, of tensors too."""

    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.fn is divmod and len(args) == 2 and not kwargs and _are_symbolic(args):
            parts = (operator.floordiv, operator.mod)
            return TupleVariable([BuiltinVariable(part).call_function(tx, list(args), {}) for part in parts])
        if self.fn is pow and len(args) == 2 and not kwargs:
            return BuiltinVariable(operator.pow).call_function(tx, list(args), {})
        if self.fn is operator.index and len(args) == 1 and isinstance(_number(args[0].realize()), torch.SymInt):
            return args[0]
        return original(self, tx, args, kwargs)

    return call_function


@functools.cache
def _rounded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __round__(self: torch.SymInt, ndigits: Any = None) -> Any:  # noqa: N807 - as Python names it
        if ndigits is None or isinstance(ndigits, int) and ndigits >= 0:
            return original(self, ndigits)
        return ROUND(self, ndigits)

    return __round__


@functools.cache
def _of_expressions(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def handler(analysis: Any, args: Sequence[Any], expr: Any, *more: Any, **named: Any) -> Any:
        is_tensor = analysis is TensorReferenceAnalysis
        if isinstance(expr, _ROUNDED) and isinstance(args[0], torch.fx.Proxy) and not is_tensor:
            return args[0].tracer.create_proxy("call_function", round, tuple(args), {})  # a Proxy has no `round`
        if not isinstance(expr, NumberExpression) and not (is_tensor and _has_no_operation(expr)):
            return original(analysis, args, expr, *more, **named)
        if analysis is SymPyValueRangeAnalysis:
            return ValueRanges.unknown_int() if expr.is_integer else ValueRanges.unknown()
        raise NotImplementedError(f"{expr} stays a number")  # caught by the pass that turns numbers into tensors

    return handler


_ROUNDED = (RoundToInt, RoundDecimal)


def _has_no_operation(expr: Any) -> bool:
    """Whether the pass that turns numbers into tensors knows no tensor operation for an expression, such as ``%``."""
    name = interp.handlers().get(expr.func)
    return name is not None and not hasattr(TensorReferenceAnalysis, name)


def _are_symbolic(args: Sequence[Any]) -> bool:
    """Whether all arguments are numbers, and at least one is symbolic."""
    values = [_number(arg.realize()) for arg in args]
    symbolic = (torch.SymInt, torch.SymFloat)
    are_numbers = all(isinstance(value, (int, float, *symbolic)) for value in values)
    return are_numbers and any(isinstance(value, symbolic) for value in values)


def _number(variable: Any) -> Any:
    if isinstance(variable, SymNodeVariable):
        return variable.sym_num
    return variable.as_python_constant() if isinstance(variable, ConstantVariable) else None


def _traced(tx: Any, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    proxy = tx.output.create_proxy("call_function", function, *proxy_args_kwargs(args, {}))
    return wrap_fx_proxy(tx, proxy)
