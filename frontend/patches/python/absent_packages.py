"""Questions for a package that is not installed: ``importlib.metadata.version("torch_xla")``.

Code catches the error (``lightning_utilities``, on which torchmetrics decides what to do). Dynamo calls the function
itself and takes what it raises for an error of its own.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

from torch._dynamo import exc
from torch._dynamo.variables import SkipFunctionVariable

from symshape.frontend.patches.patch import Changes

_QUESTIONS = (importlib.metadata.version, importlib.util.find_spec)


def absent_packages_are_errors(changes: Changes) -> None:
    """Raises the error in the traced function."""
    changes.wrap(SkipFunctionVariable, "call_function", _asking)


@functools.cache
def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if not any(self.value is one for one in _QUESTIONS):  # its own == may be anything
            return original(self, tx, args, kwargs)
        try:
            return original(self, tx, args, kwargs)
        except ModuleNotFoundError as error:
            exc.raise_observed_exception(type(error), tx, args=list(map(str, error.args)))

    return call_function
