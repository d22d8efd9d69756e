"""Traces functions of Python numbers on symbolic sizes (``math.log(x.shape[0])``) as nodes of the graph.

PyTorch does so for a few functions of ``math`` (``torch.sym_sqrt``); others it specialises, with a graph for each size.
Here such a function is a sympy function that is only evaluated at numbers, like PyTorch's ``OpaqueUnaryFn``, and a node
of the graph that calls the function itself: sizes are exact, floats are eager mode's.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Final

import sympy
import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode, handle_sym_dispatch
from torch.fx.experimental.sym_node import _NO_HINT, SymNode

from symshape.frontend.bridge.symbolic_sizes import holds_for_sizes
from symshape.frontend.bridge.tracing_errors import RefusedArgument

_NUMBERS: Final = (sympy.Integer, sympy.Float)
_NO_VALUE: Final = (ValueError, ArithmeticError, TypeError)
Domain = tuple[Callable[[Any, Any], Any], int]


class NumberExpression(sympy.Function):  # type: ignore[misc]
    """A sympy call of such a function. ``function`` computes it, ``source`` is its name in Python source."""

    function: ClassVar[Callable[..., Any]]
    source: ClassVar[str]

    @classmethod
    def eval(cls, *args: Any) -> Any:
        """The value at numbers; unevaluated where the function raises an error."""
        if not all(isinstance(arg, _NUMBERS) for arg in args):
            return None
        try:
            value = cls.function(*(int(arg) if isinstance(arg, sympy.Integer) else float(arg) for arg in args))
        except _NO_VALUE:
            return None
        return sympy.Integer(value) if cls.is_integer else sympy.Float(value)

    def _sympystr(self, printer: Any) -> str:
        return f"{self.source}({', '.join(map(printer.doprint, self.args))})"

    _torch_sympystr = _sympystr  # what PyTorch's printers of guards look for


class NumberFunction:
    """``function`` of ``module``, for arguments some of which are symbolic; it takes no keywords.

    ``returns``: int or float. ``domain``: a condition on its first argument; where the hints violate it, the call
    raises ValueError, as the function itself does.
    """

    def __init__(
        self, function: Callable[..., Any], module: str, returns: type, domain: tuple[Domain, ...] = ()
    ) -> None:
        name = function.__name__
        self.__module__, self.__name__, self.__qualname__ = module, name, name  # a graph names its targets by these
        self._function, self._returns, self._domain = function, returns, domain
        prefix = "math" if module == "math" else f'__import__("{module}", fromlist=("",))'
        attributes = {"function": staticmethod(function), "source": f"{prefix}.{name}"}
        if returns is int:
            attributes["is_integer"] = True
        kind = type(f"{module.replace('.', '_')}_{name}", (NumberExpression,), attributes)
        self._expression = functools.lru_cache(1 << 10)(kind)

    def __repr__(self) -> str:
        return f"{self.__module__}.{self.__name__}"

    def __call__(self, *args: Any) -> Any:
        """The number; symbolic where an argument is. ValueError outside of the domain."""
        symbolic = next((arg for arg in args if isinstance(arg, torch.SymInt | torch.SymFloat)), None)
        if symbolic is None:
            return self._function(*args)
        if not all(holds_for_sizes(comparison, args[0], bound) for comparison, bound in self._domain):
            raise RefusedArgument("math domain error")
        if get_proxy_mode() is not None:
            return handle_sym_dispatch(self, args, {})
        expr = self._expression(*map(_expression, args))
        if expr.is_number:
            return self._returns(expr)
        node = SymNode(expr, symbolic.node.shape_env, self._returns, self._hint(args))
        return (torch.SymInt if self._returns is int else torch.SymFloat)(node)

    def _hint(self, args: tuple[Any, ...]) -> Any:
        """The value at the hints. ValueError where the function raises an error there."""
        hints = [arg.node.hint if isinstance(arg, torch.SymInt | torch.SymFloat) else arg for arg in args]
        if None in hints:
            return _NO_HINT
        try:
            return self._returns(self._function(*hints))
        except _NO_VALUE as error:
            raise RefusedArgument(str(error)) from error


def _expression(number: Any) -> Any:
    if isinstance(number, torch.SymInt | torch.SymFloat):
        return number.node.expr
    return sympy.Integer(number) if isinstance(number, int) else sympy.Float(number)


POSITIVE: Final[Domain] = (operator.gt, 0)
NONNEGATIVE: Final[Domain] = (operator.ge, 0)
