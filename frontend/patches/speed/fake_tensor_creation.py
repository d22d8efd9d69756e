"""Creates fake tensors of symbolic sizes without recomputing the size of their storage.

PyTorch creates them with ``empty_strided``, which computes the storage's size in bytes: five operations on symbolic
sizes for each dim. Here that happens once for each storage.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.frontend.bridge.size_cache import SizeCache, cache_of, cache_of_sizes
from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten
_trial = threading.local()  # `.running`: PyTorch is creating a tensor from a new cache entry only for its dispatch keys


def entries_are_not_tried(changes: Changes) -> None:
    """PyTorch checks a new cache entry by creating a tensor from it, of which it reads the dispatch keys only. These do
    not depend on sizes, so that here the tensor has no dims."""
    changes.wrap(FakeTensorMode, "_get_output_info_for_cache_entry", _untried)
    changes.wrap(FakeTensorMode, "_get_output_tensor_from_cache_entry", _without_sizes)


@functools.cache
def _untried(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _get_output_info_for_cache_entry(
        self: Any, state: Any, key: Any, func: Any, args: Any, kwargs: Any, output: Any
    ) -> Any:
        if not isinstance(output, torch.Tensor) or not _is_remembered(output):
            return original(self, state, key, func, args, kwargs, output)
        _trial.running = True
        try:
            return original(self, state, key, func, args, kwargs, output)
        finally:
            _trial.running = False

    return _get_output_info_for_cache_entry


def _is_remembered(x: torch.Tensor) -> bool:
    """Whether a tensor has symbolic sizes of an environment with a cache, all of them backed. With unbacked ones,
    creating a tensor may fail."""
    if cache_of_sizes(x.shape) is None or x.layout != torch.strided:
        return False
    numbers = (*x.shape, *x.stride(), x.storage_offset())
    return all(type(number) is int or number.node._hint is not None for number in numbers)


@functools.cache
def _without_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _get_output_tensor_from_cache_entry(self: Any, state: Any, entry: Any, key: Any, *rest: Any) -> Any:
        if getattr(_trial, "running", False) and entry.metadata is not None:
            scalar = dataclasses.replace(entry.metadata, shape=(), stride=(), storage_offset=0, storage_bytes=None)
            entry = dataclasses.replace(entry, metadata=scalar, view_idx=None)
            rest = (aten.clone.default, *rest[1:]) if len(rest) == 2 else rest  # not a view; 2.15 passes no operator
        return original(self, state, entry, key, *rest)

    return _get_output_tensor_from_cache_entry


def views_are_made_once(changes: Changes) -> None:
    """Creates a cached view directly on its base's storage. Before 2.15 PyTorch creates and replaces one."""
    changes.wrap(FakeTensorMode, "_get_output_tensor_from_cache_entry", _views_made_once)


@functools.cache
def _views_made_once(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _get_output_tensor_from_cache_entry(self: Any, state: Any, entry: Any, key: Any, func: Any, args: Any) -> Any:
        env, metadata = state.shape_env, entry.metadata
        if metadata is None or entry.view_idx is None or cache_of(env) is None or self.shape_env is not env:
            return original(self, state, entry, key, func, args)
        base = args[entry.view_idx]
        sizes, strides = (_numbers(values, key, env) for values in (metadata.shape, metadata.stride))
        (offset,) = _numbers((metadata.storage_offset,), key, env)
        with in_kernel_invocation_manager(self), env.suppress_guards():
            made = torch.empty_strided(
                (),
                (),
                dtype=metadata.dtype,
                layout=metadata.layout,
                device="meta",
                requires_grad=metadata.requires_grad,
            )
            if metadata.is_conj:
                torch._C._set_conj(made, True)
            if metadata.is_neg:
                torch._C._set_neg(made, True)
            made.set_(base.untyped_storage(), offset, sizes, strides)
        return FakeTensor(self, made, metadata.device)

    return _get_output_tensor_from_cache_entry


def _numbers(values: Any, key: Any, env: Any) -> tuple[Any, ...]:
    """The numbers of a cache entry: constants, or the sizes of ``key`` that they stand for."""
    return tuple(value if type(value) is int else value.extract(key, env) for value in values)


def wrappers_have_a_memory(changes: Changes) -> None:
    """Gives a functionalisation wrapper the storage size of the tensor that it wraps, as PyTorch does since 2.15."""
    changes.attribute(FunctionalTensor, "__new__", staticmethod(_wrapper(vars(FunctionalTensor)["__new__"].__func__)))


@functools.cache
def _wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __new__(cls: Any, elem: torch.Tensor, mode: Any) -> Any:
        sizes = elem.shape
        cache = cache_of_sizes(sizes)
        if cache is None or elem.layout != torch.strided or torch.is_inference_mode_enabled():
            return original(cls, elem, mode)  # in inference mode PyTorch sets more attributes
        if _new_questions(sizes, cache):
            return original(cls, elem, mode)
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            sizes,
            elem.stride(),
            elem.storage_offset(),
            None,  # memory format
            elem.dtype,
            elem.layout,
            elem.device,
            False,  # pinned
            elem.requires_grad,
            None,  # dispatch policy of sizes and strides
            False,  # dispatch of the device
            False,  # dispatch of the layout
            FunctionalTensor._extra_dispatch_keys & torch._C._dispatch_keys(elem),
            elem.untyped_storage().size(),
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        made.elem = elem
        return made

    return __new__


def _new_questions(sizes: Any, cache: SizeCache) -> bool:
    """Whether PyTorch has not yet asked of some size whether it is 0, as it does to compute the bytes; the answer may
    be a guard. Marks the sizes as asked."""
    known = len(cache.empty)
    for size in sizes:
        if type(size) is not int:
            cache.empty.add((size.node.expr, ShapeEnv._suppress_guards_tls()))
        if (size if type(size) is int else size.node.hint) == 0:
            break  # the storage has no bytes, whatever the other sizes are
    return len(cache.empty) > known
