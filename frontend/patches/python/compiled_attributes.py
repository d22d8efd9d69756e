"""Attributes of a compiled function that a traced function reads: ``inspect.signature(self.training_step)``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.functions import BaseUserFunctionVariable, WrapperUserFunctionVariable

from symshape.frontend.patches.patch import Changes


def attributes_are_the_wrappers(changes: Changes) -> None:
    """Reads them from the function that ``torch.compile`` returned, which is what Dynamo guards, and not from the one
    that it wraps. PyTorch 2.14 does so too."""
    from torch._dynamo.variables.dicts import SideEffectsProxyDict  # not in every PyTorch that rows are for

    changes.wrap(SideEffectsProxyDict, "get_example_value_dict", _reading)
    changes.wrap(BaseUserFunctionVariable, "call_obj_hasattr", _asking)


@functools.cache
def _reading(original: Callable[..., Any]) -> Any:
    """Wraps a static method, which fails for a bound method: that has no dictionary."""

    @functools.wraps(original)
    def get_example_value_dict(vt: Any) -> Any:
        if isinstance(vt, WrapperUserFunctionVariable):
            return getattr(vt.wrapper_obj, "__dict__", {})
        return original(vt)

    return staticmethod(get_example_value_dict)


@functools.cache
def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_obj_hasattr(self: Any, tx: Any, name: str) -> Any:
        if isinstance(self, WrapperUserFunctionVariable) and name in getattr(self.wrapper_obj, "__dict__", {}):
            return ConstantVariable.create(True)
        return original(self, tx, name)

    return call_obj_hasattr
