"""Layers and functions of ``torch.nn`` whose Python code asks for sizes or data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch._dynamo.variables import ConstantVariable, UserFunctionVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.nn.modules.transformer import _detect_is_causal_mask

from symshape.frontend.bridge.symbolic_sizes import is_unbacked
from symshape.frontend.patches.patch import Changes


def checks_of_layers_at_call_time(changes: Changes) -> None:
    """Asserts at call time that training-mode normalisation gets more than one value, if sizes are unbacked."""
    for name, first in (("_verify_batch_size", 0), ("_verify_spatial_size", 1)):
        changes.wrap(functional, name, functools.partial(_asserted, first))


def _asserted(first: int, original: Callable[..., Any]) -> Callable[..., None]:
    def check(size: Sequence[Any]) -> None:
        if not any(isinstance(one, torch.SymInt) and is_unbacked(one) for one in size):
            original(size)
            return
        total: Any = 1 if first else size[0]
        for one in size[2:]:
            total = total * one
        assert_: Any = torch._check_value
        assert_(total != 1, lambda: f"Expected more than 1 value to normalise, got input size {size}")

    return check


def masks_are_not_read(changes: Changes) -> None:
    """Skips the data-dependent test whether a mask is causal, which transformers make only as a hint for attention."""
    changes.wrap(UserFunctionVariable, "call_function", _without_looking)


def _without_looking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        said = (*args[1:2], *(value for name, value in kwargs.items() if name == "is_causal"))
        if self.fn is not _detect_is_causal_mask or any(not value.is_constant_none() for value in said):
            return original(self, tx, args, kwargs)
        return ConstantVariable.create(False)

    return call_function


def class_counts_are_traced(changes: Changes) -> None:
    """Traces ``one_hot`` without a number of classes like any other call; Dynamo breaks the graph."""
    handlers: Any = TorchInGraphFunctionVariable._get_handlers()
    changes.without(handlers, functional.one_hot)
