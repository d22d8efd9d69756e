"""Guards on keys and attributes that did not exist when a function was traced.

If a lookup raises KeyError or AttributeError and the function handles it (``try: k = options["k"]``), Dynamo traces the
path without the key, and no guard tests at later calls whether it exists by then. Here that is a guard.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch._dynamo import exc

from symshape.frontend.patches.patch import Changes


def absent_keys_are_guarded(changes: Changes) -> None:
    """Adds guards on keys that are absent from dictionaries that the function gets or reads."""
    from torch._dynamo.variables.dicts import ConstDictVariable

    changes.wrap(ConstDictVariable, "getitem_const_raise_exception_if_absent", _with_guard_on_key)


def absent_keys_without_default_are_guarded(changes: Changes) -> None:
    """As above for ``defaultdict``, which has its own lookup."""
    from torch._dynamo.variables import DefaultDictVariable

    changes.wrap(DefaultDictVariable, "mp_subscript_impl", _with_guard_on_key)


def absent_keys_without_default_are_guarded_2_11(changes: Changes) -> None:
    """``absent_keys_without_default_are_guarded`` for PyTorch before Dynamo had slots."""
    from torch._dynamo.variables import DefaultDictVariable

    changes.wrap(DefaultDictVariable, "call_method", _lookup_with_guard_on_key)


@functools.cache
def _with_guard_on_key(original: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    @functools.wraps(original)
    def getitem(self: Any, tx: Any, arg: Any) -> Any:
        try:
            return original(self, tx, arg)
        except exc.ObservedKeyError:
            (getattr(self, "_base_vt", None) or self).install_dict_contains_guard(tx, [arg])
            raise

    return getitem


@functools.cache
def _lookup_with_guard_on_key(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        try:
            return original(self, tx, name, args, kwargs)
        except exc.ObservedKeyError:
            if name == "__getitem__":
                self.install_dict_contains_guard(tx, args)
            raise

    return call_method


def absent_attributes_are_guarded(changes: Changes) -> None:
    """Adds guards on attributes that are absent from objects of users' classes (layers included), classes, modules and
    tensors."""
    from torch._dynamo.variables import misc, tensor, user_defined

    of = (user_defined.UserDefinedObjectVariable, user_defined.UserDefinedClassVariable, misc.PythonModuleVariable)
    method = (
        "var_getattr" if hasattr(tensor.TensorVariable, "var_getattr") else "tp_getattro_impl"
    )  # since PyTorch 2.14
    for owner in (*of, tensor.TensorVariable):
        changes.wrap(owner, method, _with_guard_on_attribute)


@functools.cache
def _with_guard_on_attribute(original: Callable[[Any, Any, str], Any]) -> Callable[[Any, Any, str], Any]:
    from torch._dynamo.guards import install_guard

    @functools.wraps(original)
    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        try:
            return original(self, tx, name)
        except exc.ObservedAttributeError:
            if self.source and not _is_computed(getattr(self, "value", None), name):
                install_guard(_guard(self.source, name))
            raise

    return var_getattr


def _guard(source: Any, name: str) -> Any:
    """A guard that there is such an attribute, or that there is not."""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import AttrSource

    if "attr" in inspect.signature(GuardBuilder.HASATTR).parameters:
        return source.make_guard(functools.partial(GuardBuilder.HASATTR, attr=name))
    of_attribute: Any = GuardBuilder.HASATTR  # in PyTorch 2.11
    return AttrSource(source, name).make_guard(of_attribute)


def _is_computed(owner: Any, name: str) -> bool:
    """Whether a property has raised the error: a guard would run it at every call."""
    return inspect.getattr_static(owner, name, _is_computed) is not _is_computed
