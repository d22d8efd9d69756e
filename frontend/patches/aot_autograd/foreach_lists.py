"""``torch._foreach_*_`` on lists whose tensors share memory: handles one tensor after another, as eager mode on CPUs.

Functionalisation makes a single call, which reads all lists before anything is written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

from symshape.frontend.bridge.operators import schema_of
from symshape.frontend.patches.patch import Changes

aten: Any = torch.ops.aten


def _in_place() -> Iterator[Any]:
    """The overloads that write to a list of tensors."""
    names = {name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    for name in sorted(names):
        if name.startswith("_foreach_") and name.endswith("_"):
            packet = getattr(aten, name)
            yield from (getattr(packet, overload) for overload in packet.overloads())


_IN_PLACE = tuple(_in_place())


def lists_are_written_in_order(changes: Changes) -> None:
    """Splits a call whose lists share memory into one call per tensor."""
    for op in _IN_PLACE:
        changes.kernels(op, op.python_key_table, {FunctionalTensorMode: functools.partial(_call, op)})


def tables() -> list[str]:
    """Names of the tables that ``lists_are_written_in_order`` changes."""
    return [f"torch.ops.{op}.python_key_table" for op in _IN_PLACE]


def _call(op: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
    """The kernel, called without the functionalisation mode."""
    lists = [value for value in (*args, *kwargs.values()) if _is_list_of_tensors(value)]
    if not _is_read_when_written(args[0], lists):
        types = tuple({type(one) for values in lists for one in values})
        return mode.__torch_dispatch__(op, types, args, kwargs)
    split = [str(a.type).startswith("List[") or a.name == "scalars" for a in schema_of(op).arguments]
    with mode:
        for i in range(len(args[0])):
            op(*(value[i : i + 1] if apart else value for value, apart in zip(args, split)), **kwargs)
    return None


def _is_list_of_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, torch.Tensor) for one in value)


def _is_read_when_written(written: Sequence[torch.Tensor], lists: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether a later element of a list shares memory with a tensor that was written before."""
    before: set[int] = set()
    for i, one in enumerate(written):
        if any(_memory(values[i]) in before for values in lists):
            return True
        before.add(_memory(one))
    return False


def _memory(x: torch.Tensor) -> int:
    storage: Any = x.untyped_storage()
    return int(storage._cdata)
