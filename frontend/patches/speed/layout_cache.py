"""Caches questions about layouts for each combination of sizes and strides.

Each question takes some twenty operations on symbolic sizes, and is asked of every tensor several times. For backed
sizes the answer never changes, because its guards exist since the first time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _prims_common
from torch._subclasses import fake_tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.frontend.bridge.size_cache import SizeCache, cache_of_sizes
from symshape.frontend.patches.patch import Changes


def layouts_are_cached(changes: Changes) -> None:
    """Caches whether tensors are contiguous, and their memory format."""
    changes.wrap(_prims_common, "check_contiguous_sizes_strides", _contiguity)
    for module in (_prims_common, fake_tensor):
        changes.wrap(module, "suggest_memory_format", _format)


@functools.cache
def _contiguity(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def check_contiguous_sizes_strides(
        sizes: Sequence[Any], strides: Sequence[Any], false_if_dde: bool = False
    ) -> bool:
        return bool(_answer(original, (sizes, strides), (sizes, strides, false_if_dde), false_if_dde))

    return check_contiguous_sizes_strides


@functools.cache
def _format(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def suggest_memory_format(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            return original(x)
        return _answer(original, (x.shape, x.stride()), (x,), None)

    return suggest_memory_format


def _answer(original: Callable[..., Any], numbers: Sequence[Sequence[Any]], arguments: Any, which: Any) -> Any:
    """The result of ``original(*arguments)``, cached by the sizes and strides in ``numbers`` and by ``which``."""
    sizes, strides = numbers
    cache = cache_of_sizes(sizes) or cache_of_sizes(strides)
    key = cache and _key(cache, (*sizes, *strides), (original, which))
    if cache is None or key is None:
        return original(*arguments)
    if key not in cache.layouts:
        cache.layouts[key] = original(*arguments)
    return cache.layouts[key]


def _key(cache: SizeCache, numbers: Sequence[Any], question: Any) -> Any:
    """The cache's key; None if the answer may change, since more may become known of unbacked sizes."""
    expressions = []
    for number in numbers:
        if type(number) is int:
            expressions.append(number)
        elif type(number) is not torch.SymInt or type(number.node._hint) is not int:
            return None
        else:
            expressions.append(number.node.expr)
    return question, tuple(expressions), ShapeEnv._suppress_guards_tls()
