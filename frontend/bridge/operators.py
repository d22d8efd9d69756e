"""Reads properties of operators: schemas, tags, aliases, kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.artifact.call_text import module_named

# What ``torch.nn.utils.rnn.pad_packed_sequence`` calls; the operator below it takes integers.
PAD_PACKED: Any = torch._VF._pad_packed_sequence  # type: ignore[attr-defined]
# What ``torch.nn.functional.pad`` calls; its parameter ``value`` is a float in C++.
PAD: Any = torch._C._nn.pad
# What Dynamo's graphs have for ``x.data``.
READ_DATA: Any = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]


def nn_function(name: str) -> Any:
    """A function of C++ that a Python function of ``torch.nn.functional`` calls."""
    return getattr(torch._C._nn, name)


def schema_of(target: Any) -> Any:
    """The ``torch.FunctionSchema`` of an operator overload; None for other targets."""
    return getattr(target, "_schema", None)


def overload_name(op: torch._ops.OpOverload) -> str:
    """``Tensor`` of ``aten.add.Tensor``; "default" where the schema names none."""
    return op._overloadname


def overload_schemas(packet: torch._ops.OpOverloadPacket) -> list[Any]:
    """The schemas of all overloads of an operator."""
    return [getattr(packet, overload)._schema for overload in packet.overloads()]


def tagged_operators(tag: Any) -> list[str]:
    """Names of the ATen overloads with a tag (``torch.Tag.core``) that return tensors and write to none, sorted."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        op = getattr(packet, schema.overload_name or "default", None)
        gives_tensors = any("Tensor" in str(result.type) for result in schema.returns)
        if op is not None and tag in op.tags and gives_tensors and not schema.is_mutable:
            found.append(str(op))
    return sorted(found)


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` is active or traced: Dynamo compiles no frames there, and it takes no
    ``torch.autograd.Function`` without rules for it."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def returns_nothing(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and not target._schema.returns


def returns_views(op: torch._ops.OpOverload) -> bool:
    """Whether an operator declares that a result may share memory with an operand, or that it writes to one."""
    return any(item.alias_info is not None for item in (*op._schema.arguments, *op._schema.returns))


def is_view(target: Any) -> bool:
    """Whether the results of an operator are views of its first argument, which it does not write to."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.returns:
        return False
    return all(x.alias_info is not None and not x.alias_info.is_write for x in target._schema.returns)


def autocast_scopes() -> tuple[Any, Any]:
    """The functions with which a Dynamo graph enters and leaves ``torch.autocast``."""
    return torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


SET_GRAD_ENABLED: Any = torch._C._set_grad_enabled  # what a Dynamo graph calls where ``torch.no_grad`` begins and ends


def is_of_transforms(target: Any) -> bool:
    """Whether a Dynamo graph enters or leaves a transform of ``torch.func`` with a function, or wraps a tensor."""
    return str(getattr(target, "__module__", "")).startswith(("torch._functorch", "torch._C._functorch"))


def run_with_states() -> tuple[Any, Any]:
    """The operators that the partitioner writes for draws in a checkpoint: one that saves the generator's state and
    draws, and one that draws from such a state."""
    from torch._prims import rng_prims

    return rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state


def missing_arguments(op: torch._ops.OpOverload, given: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """The values of the positional arguments after ``given``: by name, else the schema's defaults."""
    rest = [argument for argument in op._schema.arguments[len(given) :] if not argument.kwarg_only]
    return [named.get(argument.name, argument.default_value) for argument in rest]


_PYTHON_MODULES = ("torch.nn.functional", "torch.functional", "torch._jit_internal")


def is_python_function(target: Any) -> bool:
    """Whether the target of a node is a function that PyTorch has in Python."""
    return getattr(target, "__module__", None) in _PYTHON_MODULES


# Where functions that Dynamo puts into a graph are found by name.
_FUNCTION_MODULES = (
    "torch",
    "torch.nn.functional",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._fft",
    "torch._C._special",
    "torch._C._VariableFunctions",
    "torch.functional",
    "torch.masked",
    "torch.masked._ops",
    "_operator",
    "torch._lowrank",
    "math",
    "torch._refs",
    "torch._prims_common",
)


def is_torch_function(target: Any) -> bool:
    """Whether the target of a node is a function of a module of PyTorch, or of Python's operators, that computes."""
    return getattr(target, "__module__", None) in _FUNCTION_MODULES


def module_of(function: Any) -> str | None:
    """The name of a module in which a function is found by its own name; None for one that is in none of them."""
    name = getattr(function, "__name__", "")
    for module in (getattr(function, "__module__", None), *_FUNCTION_MODULES):
        if module and getattr(module_named(module), name, None) is function:
            return str(module)
    return None


# A kernel gets the usual one, to call where it has nothing better.
AutogradKernel = Callable[..., Any]


def has_no_formula(op: Any, values: Any) -> bool:
    """Whether a gradient is wanted through a user's operator that has no formula of its own: neither a kernel for
    autograd nor one that is composed of other operators."""
    if not isinstance(op, torch._ops.OpOverload) or is_builtin(op) or not torch.is_grad_enabled():
        return False
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(values)):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not any(has(op.name(), key) for key in _FORMULAS)


def has_formula(result: torch.Tensor) -> bool:
    """Whether autograd can differentiate what has computed a result: PyTorch gives one of a user's kernel that computes
    on memory a node that only warns."""
    return result.grad_fn is not None and "WarnNotImplemented" not in result.grad_fn.name()


_FORMULAS = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")


def has_python_kernel(op: torch._ops.OpOverload) -> bool:
    """Whether a kernel of an operator for a device was registered in Python (``Library.impl``)."""
    _, _, name = op.name().partition("::")
    return any(f"{op.namespace}/{name}/{key}" in torch.library._impls for key in _DEVICES)


_DEVICES = ("CPU", "CUDA", "CompositeExplicitAutograd")


def has_rule(op: Any) -> bool:
    """Whether a fake rule of a user's operator is registered."""
    from torch._library.simple_registry import singleton

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return singleton.find(op.name()).fake_impl.kernel is not None or has(op.name(), "Meta")


def is_for_all_devices(op: Any) -> bool:
    """Whether a user's operator has a kernel for all devices, and none for tensors without data."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not is_builtin(op) and has(op.name(), "CompositeExplicitAutograd") and not has(op.name(), "Meta")


def is_builtin(op: Any) -> bool:
    """Whether an operator is PyTorch's own."""
    from torch._library import utils

    return utils.is_builtin(op)


def declaration_of(op: torch._ops.OpOverload) -> str:
    """Everything that an operator declares, as text: schema, tags, side effects."""
    tags = sorted(map(str, op.tags))
    return f"{op._schema} {tags}{' has side effects' if has_side_effects(op) else ''}"


def has_side_effects(op: Any) -> bool:
    """Whether an operator is declared to do more than to return results (``register_effect``)."""
    from torch._higher_order_ops.effects import has_effects

    return bool(has_effects(op))


def items_are_indexed() -> bool:
    """Whether PyTorch writes ``x[i]`` as ``index``: in a function of ``flex_attention``, which is traced for one score
    and mapped over all of them later."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.overrides import _get_current_function_mode_stack

    return any(isinstance(mode, TransformGetItemToIndex) for mode in _get_current_function_mode_stack())
