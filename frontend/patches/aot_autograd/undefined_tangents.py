"""Passes undefined gradients to compiled backward graphs, which take them (``runtime/undefined_gradients.py``).

Compiled autograd runs the traced backward graph itself, which takes zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dynamo import compiled_autograd
from torch._functorch._aot_autograd import runtime_wrappers

from symshape.frontend.bridge.aot_autograd import undefined_gradients_of
from symshape.frontend.patches.patch import Changes


def tangents_may_be_undefined(changes: Changes) -> None:
    """Where a result has no gradient, backward gets None instead of zeros."""
    changes.wrap(runtime_wrappers._AOTDispatchAutogradFunctionFactory, "build", _without_zeros)


def _without_zeros(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def build(factory: Any) -> Any:
        function, spec = original(factory), factory.spec
        as_zeros = undefined_gradients_of(spec.compiled_bw_func)
        # A tensor subclass is taken apart before the graph is called, and has no parts where it is None.
        if spec.maybe_subclass_meta is None and as_zeros is not None:
            function.forward = staticmethod(_forward(function.forward))
            function._bw_prologue_fn = staticmethod(_prologue(function._bw_prologue_fn, as_zeros))
        return function

    return build


def _forward(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.set_materialize_grads(False)
        return original(ctx, *args)

    return forward


def _prologue(
    original: Callable[..., list[Any]], as_zeros: Callable[[list[Any]], list[Any]]
) -> Callable[..., list[Any]]:
    """What makes the arguments of the backward graph."""

    def prologue(*given: Any) -> list[Any]:
        args = original(*given)
        return as_zeros(args) if compiled_autograd.in_compiled_autograd_region else args

    return prologue
