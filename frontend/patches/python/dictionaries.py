"""Guards on the keys of dictionaries that a function iterates over or changes, and of sets from which it takes
elements.

Dynamo guards on the keys that a function looks up. If it reads all keys (``list(d)``, ``if d:``, ``{**d}``), or writes
all items back after the graph because one was removed, a later call must have the keys of the trace, in their order.
For some of these cases PyTorch has no guard, or one that ignores the order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes


def keys_are_guarded(changes: Changes) -> None:
    """Guards on all keys and their order where all keys are read, or items are written back."""
    from torch._dynamo import side_effects
    from torch._dynamo.variables import builtin, dicts

    changes.wrap(dicts.ConstDictVariable, "install_dict_keys_match_guard", _with_order)
    changes.wrap(dicts.ConstDictVariable, "as_python_constant", _of_guarded_keys)
    changes.wrap(builtin.BuiltinVariable, "call_not_", _negated_with_guard)
    changes.wrap(side_effects.SideEffects, "mutation", _written_with_guard)
    wrappers = {"call_method": _methods_with_guard, "nb_or_impl": _merged_with_guard}
    wrappers |= dict.fromkeys(("repr_impl", "tp_repr_impl"), _shown_with_guard)  # the second since 2.15
    for owner in _kinds():
        for name in wrappers.keys() & vars(owner).keys():
            changes.wrap(owner, name, wrappers[name])


def methods_guard_keys(changes: Changes) -> None:
    """The same in methods of dictionaries, and in ``extend`` of a list by one."""
    from torch._dynamo.variables import dicts, lists

    changes.wrap(dicts.ConstDictVariable, "call_method", _methods_with_guard)
    changes.wrap(lists.CommonListMethodsVariable, "call_method", _extended_with_guard)


def listed_methods_guard_keys(changes: Changes) -> None:
    """The same where methods are functions in a table of their class."""
    from torch._dynamo.variables import VariableTracker

    changes.wrap(VariableTracker, "call_method", _listed_with_guard)


def _kinds() -> list[Any]:
    """Classes for dictionaries other than ``dict`` that have methods of their own."""
    from torch._dynamo import variables
    from torch._dynamo.variables import user_defined

    named = ("OrderedDictVariable", "DefaultDictVariable")
    found = [getattr(variables, name, getattr(user_defined, name, None)) for name in named]
    return [one for one in found if one is not None]


def guard_keys(variable: Any) -> None:
    """Requires the same keys, in the same order, of a dictionary that the function has from outside."""
    base = getattr(variable, "_base_vt", None) or variable
    guard = getattr(base, "install_dict_keys_match_guard", None)
    if guard is not None and base.source is not None:
        guard()


@functools.cache
def _with_order(original: Callable[[Any], None]) -> Callable[[Any], None]:
    from torch._dynamo.source import is_constant_source
    from torch._dynamo.symbolic_convert import InstructionTranslator

    @functools.wraps(original)
    def install(self: Any) -> None:
        original(self)
        if self.source and not is_constant_source(self.source):
            InstructionTranslator.current_tx().output.guard_on_key_order.add(self.source)

    return install


@functools.cache
def _of_guarded_keys(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def as_python_constant(self: Any) -> Any:
        guard_keys(self)
        return original(self)

    return as_python_constant


@functools.cache
def _methods_with_guard(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "popitem":  # of an empty one PyTorch has no guard
            guard_keys(self)
        if name == "move_to_end":  # PyTorch writes items back if there is a new one
            (getattr(self, "_base_vt", None) or self).should_reconstruct_all = True
        return original(self, tx, name, args, kwargs)

    return call_method


@functools.cache
def _shown_with_guard(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def repr_impl(self: Any, tx: Any) -> Any:
        guard_keys(self)
        return original(self, tx)

    return repr_impl


@functools.cache
def _merged_with_guard(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def nb_or_impl(self: Any, tx: Any, other: Any, *rest: Any, **options: Any) -> Any:
        guard_keys(self)
        guard_keys(other)
        return original(self, tx, other, *rest, **options)

    return nb_or_impl


@functools.cache
def _extended_with_guard(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.variables.dicts import ConstDictVariable

    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "extend" and args and isinstance(args[0].realize(), ConstDictVariable):
            guard_keys(args[0].realize())
        return original(self, tx, name, args, kwargs)

    return call_method


@functools.cache
def _listed_with_guard(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.lists import BaseListVariable

    of_dictionary, of_list = _methods_with_guard(original), _extended_with_guard(original)

    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if isinstance(self, ConstDictVariable):
            return of_dictionary(self, tx, name, args, kwargs)
        return (of_list if isinstance(self, BaseListVariable) else original)(self, tx, name, args, kwargs)

    return call_method


@functools.cache
def _negated_with_guard(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_not_(self: Any, tx: Any, a: Any) -> Any:
        guard_keys(getattr(a, "dv_dict", a))
        return original(self, tx, a)

    return call_not_


@functools.cache
def _written_with_guard(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    from torch._dynamo.variables.dicts import ConstDictVariable

    @functools.wraps(original)
    def mutation(self: Any, var: Any) -> None:
        if isinstance(var, ConstDictVariable):
            guard_keys(var)
        original(self, var)

    return mutation


def differences_are_written(changes: Changes) -> None:
    """``s -= other`` of a set that the function has from outside: PyTorch writes it back if an element is new."""
    from torch._dynamo.variables.sets import SetVariable

    changes.wrap(SetVariable, "nb_inplace_subtract_impl", _written_anew)


@functools.cache
def _written_anew(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def nb_inplace_subtract_impl(self: Any, tx: Any, other: Any) -> Any:
        self.should_reconstruct_all = True
        return original(self, tx, other)

    return nb_inplace_subtract_impl
