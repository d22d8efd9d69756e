"""Traces ``associative_scan`` as one operator.

PyTorch's generic mode is a Python recursion over the length: log2(n) levels of slices, and a graph for each length. Its
pointwise mode is the operator ``torch.ops.higher_order.associative_scan``, which is independent of the length. Here
both modes use the operator.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.utils._pytree as pytree
from torch._dynamo.variables import UserFunctionVariable
from torch._dynamo.variables.functions import FunctoolsPartialVariable
from torch._dynamo.variables.higher_order_ops import TorchHigherOrderOperatorVariable
from torch._dynamo.variables.lists import ListVariable, TupleVariable
from torch._higher_order_ops.associative_scan import associative_scan_op, generic_associative_scan
from torch._higher_order_ops.utils import _maybe_compile_and_run_fn

from symshape.frontend.patches.patch import Changes

try:
    from torch._dynamo.utils import _make_inlined
except ImportError:  # PyTorch 2.11 defines it in another module
    from torch._dynamo.variables.higher_order_ops import _make_inlined

# Imported by name: the attribute of its package is the function.
_MODULE: Any = importlib.import_module("torch._higher_order_ops.associative_scan")
_combining: list[Any] = []  # a stack: the combine function of each associative_scan call that Dynamo is tracing


def one_operator(changes: Changes) -> None:
    """For Dynamo: replaces the generic mode's recursion by a call of the operator, with the function for slices."""
    changes.wrap(UserFunctionVariable, "call_function", _traced)


def one_operator_for_jit(changes: Changes) -> None:
    """For `symshape.jit`: the same, where the function runs while it is traced."""
    changes.wrap(_MODULE, "generic_associative_scan", _recorded)


def _traced(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.fn is _MODULE.associative_scan:
            _combining.append(args[0] if args else kwargs.get("combine_fn"))
            try:
                return original(self, tx, args, kwargs)
            finally:
                _combining.pop()
        if self.fn is generic_associative_scan and _combining:
            leaves = args[1].unpack_var_sequence(tx)
            if _as_long([leaf.as_proxy().node.meta["example_value"] for leaf in leaves]):
                return _operator(tx, args[0], leaves)
        return original(self, tx, args, kwargs)

    return call_function


def _as_long(xs: Sequence[Any]) -> bool:
    """Whether all operands have the first one's length, with guards; the recursion raises the error if not."""
    return all(bool(x.shape[0] == xs[0].shape[0]) for x in xs[1:])


def _operator(tx: Any, stacked: Any, leaves: Sequence[Any]) -> Any:
    """The variable of the operator's result. ``stacked``: the function for stacks, a ``vmap`` of the one for slices."""
    combine = FunctoolsPartialVariable(stacked.func, stacked.args, stacked.keywords | {"combine_fn": _combining[-1]})
    xs = [leaf.call_method(tx, "contiguous", [], {}) for leaf in leaves]
    operator = TorchHigherOrderOperatorVariable.make(associative_scan_op)
    with Changes() as changes:
        any_operation(changes)
        found = operator.call_function(tx, [combine, ListVariable(xs)], {"additional_inputs": TupleVariable([])})
    return _make_inlined(tx, pytree.tree_leaves)(found)


def any_operation(changes: Changes) -> None:
    """Allows any function in the pointwise mode; PyTorch would require it to be pointwise."""
    changes.attribute(importlib.import_module("torch._inductor.utils"), "is_pointwise_use", lambda use: True)


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    tracing = threading.get_ident()

    def generic(operator: Any, leaves: Sequence[Any], dim: int = 0, additional_inputs: Sequence[Any] = ()) -> Any:
        """The operator's eager implementation also calls this, with a function that is not a ``vmap``."""
        stacked = operator.keywords.get("combine_fn") if isinstance(operator, functools.partial) else None
        slices = inspect.getclosurevars(stacked).nonlocals.get("func") if stacked is not None else None
        if slices is None or threading.get_ident() != tracing or not _as_long(leaves):
            return original(operator, leaves, dim, additional_inputs)
        combine = functools.partial(operator.func, **(operator.keywords | {"combine_fn": slices}))
        with Changes() as changes:
            any_operation(changes)
            found = _maybe_compile_and_run_fn(_run, combine, [leaf.contiguous() for leaf in leaves])
        return pytree.tree_leaves(found)

    return generic


def _run(combine: Any, xs: Any) -> Any:
    return associative_scan_op(combine, xs, additional_inputs=())
