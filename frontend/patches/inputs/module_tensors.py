"""Parameters and buffers of modules: their sizes are constants until a module is met with others."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import config
from torch._dynamo.variables import builder
from torch.fx.experimental.symbolic_shapes import DimDynamic

from symshape.frontend.bridge.shape_env import source_name
from symshape.frontend.opaque_calls.frame_decisions import current_frame
from symshape.frontend.patches.patch import Changes

# A tensor of a module, or what it is a view of.
_OF_MODULE = re.compile(r"(?P<module>.+?)(?P<tensor>(?:\._(?:buffers|parameters)\['[^']+'\]|\.\w+?)(?:\._base)*)")


def changed_sizes_are_symbols(changes: Changes) -> None:
    """Makes a size of a module's parameter or buffer a symbol once that module has had two values of it.

    PyTorch keeps them constants for ever: a cache that grows, a table of positions for the longest length so far, or
    parameters that are pruned or split have a graph for each size. Layers of one class, each with sizes of its own,
    still have constants: sizes are compared for each module by itself.
    """
    changes.wrap(builder, "_automatic_dynamic", _symbols_if_changed)


@functools.cache
def _symbols_if_changed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def automatic_dynamic(e: Any, tx: Any, source: Any, static_shapes: Any, *args: Any, **kwargs: Any) -> Any:
        context = original(e, tx, source, static_shapes, *args, **kwargs)
        sizes: Any = getattr(context, "dynamic_sizes", None)
        if static_shapes and sizes and config.automatic_dynamic_shapes and e.layout is torch.strided:
            for d in _changed(tx, source, e.shape):
                sizes[d] = DimDynamic.DYNAMIC
        return context

    return automatic_dynamic


def _changed(tx: Any, source: Any, sizes: Sequence[int]) -> list[int]:
    """The dims of a module's tensor that have had several sizes in the frames of this function."""
    found = _OF_MODULE.fullmatch(source_name(source))
    module = named_module(tx, found["module"]) if found is not None else None
    if found is None or module is None:
        return []
    return changed_values(current_frame().decisions.module_sizes.setdefault(module, {}), found["tensor"], sizes)


def changed_values(known: dict[str, tuple[int | None, ...]], name: str, values: Sequence[int]) -> list[int]:
    """The positions of the values that have changed since the first time. ``known``: what is kept of those, by name."""
    before = known.get(name, ())
    same_rank = len(before) == len(values)
    known[name] = tuple(one if not same_rank or one == before[d] else None for d, one in enumerate(values))
    return [d for d, one in enumerate(known[name]) if one is None]


def named_module(tx: Any, text: str) -> torch.nn.Module | None:
    """The module that a source is of, if it is one."""
    try:
        found = eval(text, {"L": tx.output.local_scope, "G": tx.output.global_scope})
    except Exception:  # noqa: BLE001 - a source that is no expression of the frame's variables
        return None
    return found if isinstance(found, torch.nn.Module) else None
