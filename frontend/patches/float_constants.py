"""Floats that a function reads and is not given: attributes of modules, globals, variables of closures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo import config
from torch._dynamo.source import get_local_source_name
from torch._dynamo.variables.builder import VariableBuilder

from symshape.frontend.patches.patch import Changes


def floats_are_constants(changes: Changes) -> None:
    """A float that is no argument (``eps`` of a layer norm) is a constant with a guard until it changes.

    By the usual rule it is a symbol. Most operators take their floats as numbers, so the graph would be traced once to
    see that, and the whole frame a second time with the floats as constants (``TensorifyScalarRestartAnalysis``):
    every model with a normalisation or a dropout in it. Integers of modules are constants by PyTorch's own rule.
    """
    changes.wrap(VariableBuilder, "wrap_symfloat", _constant_unless_given)


@functools.cache
def _constant_unless_given(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def wrap_symfloat(self: Any, value: float) -> Any:
        if _is_given(self.source):
            return usual(self, value)
        # Still a symbol where Dynamo saw it change.
        with config.patch(assume_static_by_default=True):
            return usual(self, value)

    return wrap_symfloat


def _is_given(source: Any) -> bool:
    """It is an argument of the frame, or in one that is no module."""
    of_module = source.guard_source.is_unspecialized_nn_module() or source.guard_source.is_specialized_nn_module()
    return not of_module and get_local_source_name(source, only_allow_input=True) is not None
