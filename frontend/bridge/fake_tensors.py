"""Fake tensors, the mode that made them, and the ShapeEnv behind their sizes."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.utils._pytree as pytree


def is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def holds_tensors(value: Any) -> bool:
    """Whether a value is a tensor of a class without memory of its own: it holds other tensors."""
    if not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter):
        return False
    if value.layout != torch.strided or is_fake(value):
        return False
    try:
        return value.numel() > 0 and value.untyped_storage().data_ptr() == 0 and not value.is_meta
    except RuntimeError:  # "invalid python storage": it has none
        return True


def has_own_functions(value: Any) -> bool:
    """Whether functions of PyTorch do, or return, something else for a tensor of this class than for a plain one."""
    kind: Any = type(value)
    if not isinstance(value, torch.Tensor) or kind is torch.Tensor:
        return False
    return kind.__torch_function__ is not torch._C._disabled_torch_function_impl


def is_wrapped(value: Any) -> bool:
    """Whether a value is a tensor that a transform of ``torch.func`` has wrapped."""
    return isinstance(value, torch.Tensor) and bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory, while the tensor lives; fake tensors have one as well. What transforms of
    ``torch.func`` wrap a tensor in has that of the tensor."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return int(tensor.untyped_storage()._cdata)


def is_batched(tensor: torch.Tensor) -> bool:
    """Whether a tensor is batched by a ``vmap``."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        if torch._C._functorch.is_batchedtensor(tensor):
            return True
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return False


def traced_env_of(gm: torch.fx.GraphModule) -> Any:
    """``shape_env_of`` for a graph of Dynamo's."""
    return shape_env_of(gm, "example_value")


def shape_env_of(gm: torch.fx.GraphModule, key: str = "val") -> Any:
    """The ShapeEnv behind a graph's fake values; None if all of its sizes are static."""
    for node in gm.graph.nodes:
        value = node.meta.get(key)
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return item.node.shape_env
            if is_fake(item) and item.fake_mode.shape_env is not None:
                return item.fake_mode.shape_env
    return None


def fake_mode_of(gm: torch.fx.GraphModule) -> Any:
    """The mode under which a graph's values were traced; None if there are none."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_fake(item):
                return item.fake_mode
    return None


def mode_of(tensor: Any) -> Any:
    """The mode that made a fake tensor."""
    return tensor.fake_mode


def shape_env_of_mode(mode: Any) -> Any:
    """The ShapeEnv of a FakeTensorMode; None without one."""
    return None if mode is None else mode.shape_env


def new_symbols_are_ignored(mode: Any) -> Any:
    """While entered, unbacked symbols that are created under the mode need not occur in the result of a call."""
    env = shape_env_of_mode(mode)
    return contextlib.nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()


def forget_new_symbols(mode: Any) -> None:
    """Unbacked symbols that were made under the mode, and that no call has returned, are not looked for any more."""
    env = shape_env_of_mode(mode)
    if env is not None:
        env.pending_fresh_unbacked_symbols.clear()


def version_of(tensor: torch.Tensor) -> int:
    """The version counter of a tensor's memory."""
    return tensor._version


def is_in_functional_transform() -> bool:
    """Whether a transform of ``torch.func`` is active: ``vmap``, ``grad`` and their like."""
    return torch._C._functorch.maybe_current_level() is not None


def is_in_vmap() -> bool:
    """Whether ``vmap`` is one of the transforms that are active."""
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels)


def tracing_mode(values: Any) -> Any:
    """The tracer's mode behind some values, or the one that is in force; None without one."""
    from torch._guards import detect_fake_mode

    return detect_fake_mode(values)


def traced_by_its_kernel(op: Any, args: Any, kwargs: Any) -> Any:
    """The fake results of an operator by its own kernel, which is run on tensors without data."""
    from torch._subclasses.fake_tensor import in_kernel_invocation_manager

    mode = tracing_mode((args, kwargs))
    with in_kernel_invocation_manager(mode):
        result = op(*args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    return mode.wrap_meta_outputs_with_default_device_logic(result, op, leaves, device=kwargs.get("device"))
