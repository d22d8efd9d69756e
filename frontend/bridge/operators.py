"""What operators declare of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def schema_of(target: Any) -> Any:
    """The ``torch.FunctionSchema`` of an operator overload; None for what is none."""
    return getattr(target, "_schema", None)


def overload_name(op: torch._ops.OpOverload) -> str:
    """``Tensor`` of ``aten.add.Tensor``; "default" where the schema names none."""
    return op._overloadname


def overload_schemas(packet: torch._ops.OpOverloadPacket) -> list[Any]:
    """The schemas of all overloads of an operator."""
    return [getattr(packet, overload)._schema for overload in packet.overloads()]


def returns_nothing(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and not target._schema.returns


def returns_views(op: torch._ops.OpOverload) -> bool:
    """Whether an operator declares that a result may share memory with an operand, or that it writes to one."""
    return any(item.alias_info is not None for item in (*op._schema.arguments, *op._schema.returns))


def autocast_scopes() -> tuple[Any, Any]:
    """The functions with which a Dynamo graph enters and leaves ``torch.autocast``."""
    return torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


def run_with_states() -> tuple[Any, Any]:
    """The operators that the partitioner writes for draws in a checkpoint: one that saves the generator's state and
    draws, and one that draws from such a state."""
    from torch._prims import rng_prims

    return rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state


def missing_arguments(op: torch._ops.OpOverload, given: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """The values of the positional arguments behind ``given``: by name, else what the schema has as their default."""
    rest = [argument for argument in op._schema.arguments[len(given) :] if not argument.kwarg_only]
    return [named.get(argument.name, argument.default_value) for argument in rest]


_PYTHON_MODULES = ("torch.nn.functional", "torch.functional", "torch._jit_internal")


def is_python_function(target: Any) -> bool:
    """Whether the target of a node is a function that PyTorch has in Python."""
    return getattr(target, "__module__", None) in _PYTHON_MODULES
