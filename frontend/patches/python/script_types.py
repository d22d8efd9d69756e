"""``torch.jit.isinstance`` with classes, used in code that also supports TorchScript (layers of MONAI)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.variables import BuiltinVariable, SkipFunctionVariable

from symshape.frontend.patches.patch import Changes

_REFUSED = (dict, list, tuple)  # eager mode tests the types of their elements, and raises an error


def script_types_are_types(changes: Changes) -> None:
    """Traces it as ``isinstance``, unless element types of a container are asked for; Dynamo skips it."""
    changes.wrap(SkipFunctionVariable, "call_function", _asking)


@functools.cache
def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.value is not torch.jit.isinstance or len(args) != 2 or kwargs or not _is_of_classes(args[1]):
            return original(self, tx, args, kwargs)
        return BuiltinVariable(isinstance).call_function(tx, list(args), {})

    return call_function


def _is_of_classes(target: Any) -> bool:
    if not target.is_python_constant():
        return False
    asked = target.as_python_constant()
    return all(isinstance(one, type) and one not in _REFUSED for one in (asked if type(asked) is tuple else (asked,)))
