"""Floats that a function reads but does not receive as arguments: attributes of modules, globals, closures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo import config
from torch._dynamo.source import get_local_source_name
from torch._dynamo.variables.builder import VariableBuilder

from symshape.frontend.patches.patch import Changes


def floats_are_constants(changes: Changes) -> None:
    """Makes such a float (``eps`` of a layer norm) a guarded constant until it changes.

    PyTorch makes it a symbol. But most operators need their floats as numbers, so that the frame would be traced once
    to find that out, and again with constants (``TensorifyScalarRestartAnalysis``), for every model with a
    normalisation or dropout. For integers of modules PyTorch does the same as here.
    """
    changes.wrap(VariableBuilder, "wrap_symfloat", _constant_unless_given)


@functools.cache
def _constant_unless_given(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrap_symfloat(self: Any, value: float) -> Any:
        if _is_given(self.source):
            return original(self, value)
        # Still becomes a symbol if Dynamo has seen it change.
        with config.patch(assume_static_by_default=True):
            return original(self, value)

    return wrap_symfloat


def _is_given(source: Any) -> bool:
    """Whether a source is an argument of the frame, or inside of an argument that is not a module."""
    of_module = source.guard_source.is_unspecialized_nn_module() or source.guard_source.is_specialized_nn_module()
    return not of_module and get_local_source_name(source, only_allow_input=True) is not None
