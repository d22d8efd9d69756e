"""Sizes of a plain frame's inputs: once one of them has changed, all are symbols in the frame's later graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo import config
from torch._dynamo.variables import builder
from torch._dynamo.variables.builder import VariableBuilder
from torch.fx.experimental.symbolic_shapes import DimDynamic

from symshape.frontend.bridge.shape_env import source_name
from symshape.frontend.opaque_calls.frame_decisions import FrameDecisions, current_frame
from symshape.frontend.patches.patch import Changes


def constant_sizes_are_kept(changes: Changes) -> None:
    """Keeps the sizes and integers that a graph has as constants, for ``have_changed``.

    PyTorch makes a symbol of each size by itself, when it has changed: a model that generates text had a graph for the
    batch, the length of the prompt and the length of the cache, each with and without a mask.
    """
    changes.wrap(builder, "_automatic_dynamic", _keeps_sizes)
    changes.wrap(VariableBuilder, "wrap_symint", _keeps_integers)


def have_changed(decisions: FrameDecisions, variables: Mapping[str, Any], outer: Mapping[str, Any]) -> bool:
    """Whether a size or an integer that an earlier graph of the function has as a constant has another value in a call.
    ``variables``: the frame's local variables; ``outer``: its global ones."""
    if not decisions.sizes_change and config.automatic_dynamic_shapes:
        scope = {"L": variables, "G": outer}
        decisions.sizes_change = any(_differs(kept, _read(name, scope)) for name, kept in decisions.sizes.items())
    return decisions.sizes_change and config.automatic_dynamic_shapes


def _read(name: str, scope: dict[str, Any]) -> Any:
    try:
        return eval(name, dict(scope))
    except Exception:  # noqa: BLE001 - this call has no such input, or the source is not an expression of variables
        return None


def _differs(kept: tuple[int | None, ...] | int, found: Any) -> bool:
    if isinstance(kept, int):
        return type(found) is int and found != kept
    if not isinstance(found, torch.Tensor):
        return False
    return len(kept) != found.dim() or any(size is not None and size != n for size, n in zip(kept, found.shape))


def _keep(name: str, kept: tuple[int | None, ...] | int, now: Any) -> None:
    decisions = current_frame().decisions
    before = decisions.sizes.get(name)
    decisions.sizes_change |= before is not None and _differs(before, now)
    decisions.sizes[name] = kept


@functools.cache
def _keeps_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def automatic_dynamic(e: Any, tx: Any, source: Any, static_shapes: Any, *args: Any, **kwargs: Any) -> Any:
        context = original(e, tx, source, static_shapes, *args, **kwargs)
        kinds = getattr(context, "dynamic_sizes", None)
        if kinds is not None and not static_shapes and config.automatic_dynamic_shapes:
            constants = tuple(int(n) if kind is DimDynamic.STATIC else None for n, kind in zip(e.shape, kinds))
            _keep(source_name(source), constants, e)
        return context

    return automatic_dynamic


@functools.cache
def _keeps_integers(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrap_symint(self: Any, value: int, *args: Any, **kwargs: Any) -> Any:
        found = original(self, value, *args, **kwargs)
        if config.automatic_dynamic_shapes and found.is_python_constant():
            _keep(source_name(self.source), value, value)
        return found

    return wrap_symint
