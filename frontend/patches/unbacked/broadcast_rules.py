"""The tracer's broadcasting rules for sizes that may or may not be 1 (``broadcasting``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import _meta_registrations, _refs
from torch._refs import _conversions
from torch._subclasses import fake_impls

from symshape.frontend.decompositions.broadcasting import expanded_sizes, with_repeated_tensors, with_unknown_shapes
from symshape.frontend.patches.operator_kernels import trace_sizes_by
from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten


def broadcast_at_call_time(changes: Changes) -> None:
    """Computes result sizes that are right whether or not a dim is broadcast."""
    for module, name, ours in _rules():
        changes.attribute(module, name, ours)


@functools.cache
def _rules() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Triples (module, name in it, replacement)."""
    shapes: list[tuple[Any, str]] = [(m, "_broadcast_shapes") for m in (_refs, _meta_registrations, _conversions)]
    shapes.append((fake_impls, "infer_size"))
    tensors: list[tuple[Any, str]] = [(m, "_maybe_broadcast") for m in (_refs, _meta_registrations)]
    return [
        *((module, name, with_unknown_shapes(getattr(module, name))) for module, name in shapes),
        *((module, name, with_repeated_tensors(getattr(module, name))) for module, name in tensors),
    ]


def expand_at_call_time(changes: Changes) -> None:
    """Does the same for ``expand``."""
    trace_sizes_by(changes, {aten.expand.default: expanded_sizes})
