"""Decomposes ``torch._foreach_*`` (optimizers, ``clip_grad_norm_``): one operation for each tensor of a list.

On the CPU eager mode does the same (ForeachOpsKernels.cpp). Decomposed, an optimizer's work on one parameter becomes
one kernel; otherwise every list operation would be a library call that reads and writes all parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from symshape.frontend.bridge.operators import schema_of

aten: Any = torch.ops.aten

# By the name after ``_foreach_``: those that are called as the operator on tensors is.
_SAME = (
    "abs",
    "acos",
    "add",
    "asin",
    "atan",
    "ceil",
    "clamp_max",
    "clamp_min",
    "clone",
    "copy",
    "cos",
    "cosh",
    "div",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lerp",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "max",
    "mul",
    "neg",
    "pow",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "sub",
    "tan",
    "tanh",
    "trunc",
)
_OTHERS: dict[str, Callable[..., torch.Tensor]] = {
    "addcdiv": lambda x, a, b, value=1: aten.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: aten.addcmul(x, a, b, value=value),
    "maximum": aten.clamp_min,
    "minimum": aten.clamp_max,
    "zero": torch.zeros_like,
    "norm": lambda x, order=2, dtype=None: aten.linalg_vector_norm(x, order, dtype=dtype),
}


@functools.cache
def foreach_rules() -> Mapping[Any, Callable[..., Any]]:
    """A decomposition for each overload that has one."""
    single = {**{name: getattr(aten, name) for name in _SAME}, **_OTHERS}
    return {overload: _for_each(overload, single[name]) for name in single for overload in _overloads(name)}


def _overloads(name: str) -> Iterator[Any]:
    """All overloads but those with ``out=``, and those with the elements of a tensor as factors, which eager mode reads
    as numbers."""
    packet = getattr(aten, f"_foreach_{name}", None)
    for overload in (getattr(packet, found) for found in packet.overloads()) if packet else ():
        types = {argument.name: str(argument.type) for argument in schema_of(overload).arguments}
        if "out" not in types and types.get("scalars") != "Tensor":
            yield overload


def _for_each(overload: Any, single: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    lists = [str(argument.type).startswith("List[") for argument in schema_of(overload).arguments]

    def decomposition(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        length = next(len(value) for value, listed in zip(args, lists) if listed)
        rows = ([value[i] if listed else value for value, listed in zip(args, lists)] for i in range(length))
        return [single(*row, **kwargs) for row in rows]

    return decomposition
