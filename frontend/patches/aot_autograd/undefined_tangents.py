"""Passes undefined gradients to compiled backward graphs, which take them (``runtime/undefined_gradients.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._functorch._aot_autograd import runtime_wrappers

from symshape.frontend.bridge.aot_autograd import may_take_undefined_gradients
from symshape.frontend.patches.patch import Changes


def tangents_may_be_undefined(changes: Changes) -> None:
    """Where a result has no gradient, backward gets None instead of zeros."""
    changes.wrap(runtime_wrappers._AOTDispatchAutogradFunctionFactory, "build", _without_zeros)


def _without_zeros(usual: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def build(factory: Any) -> Any:
        function, spec = usual(factory), factory.spec
        # A tensor subclass is taken apart before the graph is called, and has no parts where it is None.
        if spec.maybe_subclass_meta is None and may_take_undefined_gradients(spec.compiled_bw_func):
            function.forward = staticmethod(_forward(function.forward))
        return function

    return build


def _forward(usual: Callable[..., Any]) -> Callable[..., Any]:
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.set_materialize_grads(False)
        return usual(ctx, *args)

    return forward
