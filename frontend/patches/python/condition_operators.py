"""Operators of Python that a symbolic condition lacks: ``(x.shape[0] > 2) ^ True``, ``(n > 2) == causal``.

PyTorch's ``SymBool`` has ``&``, ``|`` and ``==`` with another condition, ``+``, ``-`` and ``*``; a bool has all
operators of integers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from symshape.frontend.patches.patch import Changes

COMBINING = ("__and__", "__rand__", "__or__", "__ror__")  # of PyTorch, with conditions only
_UNARY = ("neg", "pos", "abs")
_BINARY = ("lshift", "rshift", "floordiv", "truediv", "mod", "pow")
_COMPARISONS = ("lt", "le", "gt", "ge")
_DIRECT = (*_UNARY, *_BINARY, *_COMPARISONS)
_NUMERIC = (*(f"__{name}__" for name in _DIRECT), *(f"__r{name}__" for name in _BINARY))
ADDED = ("__xor__", "__rxor__", "__ne__", "__invert__", *_NUMERIC)
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def conditions_have_operators(changes: Changes) -> None:
    """Gives ``torch.SymBool`` the operators of a bool. ``&``, ``|``, ``^``, ``==`` and ``!=`` of conditions are
    conditions. Otherwise a condition becomes the integer 0 or 1, which decides it, as PyTorch does for ``+``. A
    ``torch.SymInt`` gets ``~``."""
    for name in COMBINING:
        changes.wrap(torch.SymBool, name, _combined(getattr(operator, name.replace("__r", "__"))))
    changes.attribute(torch.SymBool, "__eq__", _equal)
    changes.attribute(torch.SymBool, "__ne__", _unequal)
    for name in ("__xor__", "__rxor__"):
        changes.attribute(torch.SymBool, name, _exclusive)
    for owner in (torch.SymBool, torch.SymInt):
        changes.attribute(owner, "__invert__", _inverted)
    for name in _DIRECT:
        changes.attribute(torch.SymBool, f"__{name}__", _of_integers(getattr(operator, name)))
    for name in _BINARY:
        changes.attribute(torch.SymBool, f"__r{name}__", _of_integers(getattr(operator, name), reflected=True))


def conditions_are_integers(changes: Changes) -> None:
    """Lets Python take a ``torch.SymBool`` where it takes a bool as the integer 0 or 1, which decides it: in
    ``[1, 2][n > 2]``, ``range``, ``math.sqrt``."""
    for name, number in (("__index__", int), ("__float__", float), ("__round__", int)):
        changes.attribute(torch.SymBool, name, functools.partialmethod(_decided, number))


def _decided(self: torch.SymBool, number: Callable[[bool], Any], _digits: int | None = None) -> Any:
    return number(bool(self))


def with_decided_conditions(function: Callable[..., Any], args: Any, kwargs: Any) -> Callable[..., Any]:
    """The function to be traced for one of PyTorch, of these arguments: one that takes bools as data or as an index is
    given bools in the place of conditions. C++ knows no element type for a condition, and would index by its
    integer."""
    if function not in _OF_DATA or not any(isinstance(leaf, torch.SymBool) for leaf in tree_leaves((args, kwargs))):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.SymBool, bool, (args, kwargs))
        return function(*args, **kwargs)

    return call


_OF_DATA = frozenset(
    {
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        torch.Tensor.new_tensor,
        torch.Tensor.__getitem__,
        torch.Tensor.__setitem__,
    }
)


def _combined(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``&`` and ``|``, which are symmetric: the usual method, but with a number that is no bool of integers."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(self: torch.SymBool, other: Any) -> Any:
            return original(self, other) if _is_condition(other) else _numeric(function, self, other)

        return method

    return wrapper


def _exclusive(self: torch.SymBool, other: Any) -> Any:
    return _different(self, other) if _is_condition(other) else _numeric(operator.xor, self, other)


def _unequal(self: torch.SymBool, other: Any) -> Any:
    return _different(self, other) if _is_condition(other) else _numeric(operator.ne, self, other)


def _equal(self: torch.SymBool, other: Any) -> Any:
    if _is_condition(other):
        return torch.sym_not(_different(self, other))
    return _numeric(operator.eq, self, other)


def _inverted(self: Any) -> Any:
    return -1 - _integer(self)


def _is_condition(value: Any) -> bool:
    return isinstance(value, (bool, torch.SymBool))


def _different(one: torch.SymBool, other: Any) -> Any:
    if isinstance(other, bool):
        return torch.sym_not(one) if other else one
    return (one | other) & torch.sym_not(one & other)


def _numeric(function: Callable[..., Any], one: torch.SymBool, other: Any) -> Any:
    return function(_integer(one), other) if isinstance(other, _NUMBERS) else NotImplemented


def _integer(value: Any) -> Any:
    """0 or 1 for a condition, still a number of the trace: Dynamo accepts no float of Python as a node's value."""
    return torch.SymInt(value.node.wrap_int(int(value))) if isinstance(value, torch.SymBool) else value


def _of_integers(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: torch.SymBool, *others: Any) -> Any:
        operands = [_integer(value) for value in (self, *others)]
        if not all(isinstance(value, _NUMBERS) for value in operands):
            return NotImplemented
        return function(*reversed(operands)) if reflected else function(*operands)

    return method
