"""How Dynamo runs a node on traced values, and calls a function: what cannot be traced becomes one operator, or breaks
the graph (``frontend/opaque_calls/selection.py``)."""

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
from symshape.frontend.bridge.tracing_errors import asks_for_sizes, what_was_asked
from symshape.frontend.opaque_calls.selection import node_runner
from symshape.frontend.patches.patch import Changes, may_run_operators


def opaque_calls(changes: Changes) -> None:
    """Dynamo's tracing goes on where a call asks for an unbacked size."""
    changes.attribute(utils, "run_node", node_runner(may_run_operators, utils.run_node))


def breaks_at_questions(changes: Changes) -> None:
    """Where Dynamo itself asks for a size that is in the data (``tolist``), it breaks the graph, as it does for other
    things that it cannot trace: usually it is an error."""
    changes.wrap(InstructionTranslatorBase, "call_function", _breaking)
    changes.wrap(BuiltinVariable, "call_function", _breaking)  # what an instruction does: [1, 2][n]


def comparisons_with_tensors(changes: Changes) -> None:
    """A size compared with a tensor gives a tensor (``list(x.shape) == [2, n]`` with a tensor ``n``); Dynamo takes it
    for a number, and fails where its truth is asked."""
    changes.attribute(SymNodeVariable, "create", classmethod(_or_tensor(SymNodeVariable.create)))


@functools.cache
def _or_tensor(usual: Callable[..., Any]) -> Callable[..., Any]:
    def create(cls: type, tx: Any, proxy: Any, sym_num: Any = None, **options: Any) -> Any:
        found = utils.get_fake_value(proxy.node, tx) if sym_num is None else sym_num
        return wrap_fx_proxy(tx, proxy) if isinstance(found, torch.Tensor) else usual(tx, proxy, found, **options)

    return create


@functools.cache
def _breaking(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def call_function(self: Any, fn: Any, args: Any, kwargs: Any) -> Any:
        try:
            return usual(self, fn, args, kwargs)
        except Unsupported:
            raise
        except Exception as error:
            if not asks_for_sizes(error) and not _wants_a_constant(error):
                raise
            called = fn if isinstance(fn, VariableTracker) else self
            unimplemented(str(called), what_was_asked(error), error)

    return call_function


def _wants_a_constant(error: Exception) -> bool:
    """Whether Dynamo takes only a constant where there is a size."""
    return isinstance(error, AsPythonConstantNotImplementedError) and isinstance(error.vt, SymNodeVariable)
