"""``str(error)`` of an exception that the traced function has caught.

Dynamo takes the argument's text, which is that of a plain exception. ``KeyError``, ``OSError`` and classes with a
``__str__`` of their own have another one.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from torch._dynamo.variables import (
    BuiltinVariable,
    ConstantVariable,
    ExceptionVariable,
    UserDefinedExceptionObjectVariable,
    UserFunctionVariable,
)

from symshape.frontend.patches.patch import Changes


def texts_of_exceptions(changes: Changes) -> None:
    """Uses the text that the exception's class has."""
    changes.wrap(BuiltinVariable, "call_str", _saying)


@functools.cache
def _saying(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_str(self: Any, tx: Any, arg: Any) -> Any:
        if not isinstance(arg, (ExceptionVariable, UserDefinedExceptionObjectVariable)):
            return original(self, tx, arg)
        kind: Any = arg.python_type()
        if isinstance(kind.__str__, types.FunctionType):
            return UserFunctionVariable(kind.__str__).call_function(tx, [arg], {})
        if kind.__str__ is BaseException.__str__ or not all(one.is_python_constant() for one in arg.args):
            return original(self, tx, arg)
        return ConstantVariable.create(kind.__str__(kind(*(one.as_python_constant() for one in arg.args))))

    return call_str
