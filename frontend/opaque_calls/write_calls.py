"""Serialises a call as text (`symshape/artifact/call_text.py`) while it is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.artifact.call_text import autocast_state
from symshape.frontend.bridge.operators import module_of
from symshape.runtime.torch_c import first_seen


class NotOpaque(Exception):
    """A call that cannot be one operator; the text is the reason."""


def name_of(function: Any) -> str:
    """The name by which `function_of` finds a function. NotOpaque for one that no module has under its name."""
    if isinstance(function, str):
        return f"method {function}"
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"op {function}"
    module = module_of(function)
    if module is None:
        raise NotOpaque(f"{function} has no name")
    return f"{module} {function.__name__}"


def text_of(op: Any, args: Sequence[Any], tensors: list[Any], why: str) -> dict[str, Any]:
    """A call of an operator as text, without its results; tensors among the arguments are appended to the list.
    ``why``: the reason that the report gives."""
    found = encode(list(args), tensors, [], lambda v: isinstance(v, torch.Tensor), lambda v: False)
    return {
        "function": f"op {op}",
        "args": found,
        "kwargs": {"dict": []},
        "shares": False,
        "random": False,
        "autocast": autocast_state(),
        "why": why,
    }


_NAMED = {torch.dtype: "dtype", torch.memory_format: "memory_format", torch.layout: "layout"}


def encode(value: Any, tensors: list[Any], sizes: list[Any], is_tensor: Any, is_size: Any) -> Any:
    """An argument as JSON; tensors and sizes are appended to the lists. NotOpaque for a value that is no plain data."""

    def inner(v: Any) -> Any:
        return encode(v, tensors, sizes, is_tensor, is_size)

    if is_tensor(value):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if is_size(value):
        sizes.append(value)
        return {"size": len(sizes) - 1}
    if isinstance(value, torch.SymFloat):
        return _number(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [inner(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[inner(k), inner(v)] for k, v in value.items()]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, slice):
        return {"slice": [inner(v) for v in (value.start, value.stop, value.step)]}
    for kind, name in _NAMED.items():
        if isinstance(value, kind):
            return {"torch": str(value).removeprefix("torch."), "kind": name}
    if value is Ellipsis:
        return {"ellipsis": True}
    raise NotOpaque(f"an argument of type {type(value).__name__}")


def _number(value: torch.SymFloat) -> float:
    """The value of a numeric argument at this call, with a guard: another value is another graph."""
    if first_seen(value) is None:
        raise NotOpaque("an unbacked float")
    return float(value)
