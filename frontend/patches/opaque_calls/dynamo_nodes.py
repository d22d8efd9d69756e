"""Wraps how Dynamo runs nodes on fake values and calls functions: what cannot be traced becomes an opaque call, or
breaks the graph (``frontend/opaque_calls/selection.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import utils
from torch._dynamo.exc import Unsupported
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import BuiltinVariable, SymNodeVariable
from torch._dynamo.variables.base import AsPythonConstantNotImplementedError, VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.bridge.tracing_errors import data_dependent_condition, is_data_dependent_error
from symshape.frontend.opaque_calls.selection import node_runner
from symshape.frontend.patches.patch import Changes, may_run_operators


def opaque_calls(changes: Changes) -> None:
    """Replaces a call that asks for an unbacked size by an opaque call, so that tracing continues."""
    changes.attribute(utils, "run_node", node_runner(may_run_operators, utils.run_node))


def breaks_at_unbacked_sizes(changes: Changes) -> None:
    """Breaks the graph where Dynamo itself asks for an unbacked size (``tolist``), as it does for other things that it
    cannot trace; Dynamo raises an error."""
    changes.wrap(InstructionTranslatorBase, "call_function", _breaking)
    changes.wrap(BuiltinVariable, "call_function", _breaking)  # for operators written as instructions: [1, 2][n]


def comparisons_with_tensors(changes: Changes) -> None:
    """Makes the comparison of a size with a tensor a tensor (``list(x.shape) == [2, n]`` with a tensor ``n``). Dynamo
    takes it for a number, and fails when its truth value is needed."""
    changes.attribute(SymNodeVariable, "create", classmethod(_or_tensor(SymNodeVariable.create)))


@functools.cache
def _or_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(cls: type, tx: Any, proxy: Any, sym_num: Any = None, **options: Any) -> Any:
        if not isinstance(proxy, torch.fx.Proxy):  # computed of a condition that is passed on as False: abs(n > 1)
            return VariableTracker.build(tx, proxy)
        found = utils.get_fake_value(proxy.node, tx) if sym_num is None else sym_num
        return wrap_fx_proxy(tx, proxy) if isinstance(found, torch.Tensor) else original(tx, proxy, found, **options)

    return create


@functools.cache
def _breaking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, fn: Any, args: Any, kwargs: Any) -> Any:
        try:
            return original(self, fn, args, kwargs)
        except Unsupported:
            raise
        except Exception as error:
            if not is_data_dependent_error(error) and not _wants_a_constant(error):
                raise
            called = fn if isinstance(fn, VariableTracker) else self
            unimplemented(str(called), data_dependent_condition(error), error)

    return call_function


def _wants_a_constant(error: Exception) -> bool:
    """Whether Dynamo rejected a size because it needs a constant."""
    return isinstance(error, AsPythonConstantNotImplementedError) and isinstance(error.vt, SymNodeVariable)
