"""Keeps the layout of tensors that are written in place, as in eager mode.

Functionalisation replaces a tensor that is written in place by the result of the functional operator. ``masked_fill``
of a transposed tensor is contiguous, so that a ``view`` after ``masked_fill_`` could not be traced. Results are
therefore laid out in the original order of dims.

A tensor that is a part of a storage still gets a storage of its own, which only ``as_strided`` reveals, since it reads
by address. If a storage is both written and read by address, the graph is traced again, with results written into a
copy of the whole storage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.traceback import get_current_meta

from symshape.errors import CompileError
from symshape.frontend.bridge.symbolic_sizes import known_equal
from symshape.frontend.decompositions.eager_layouts import order_of_clone, relaid
from symshape.frontend.patches.patch import Changes
from symshape.frontend.patches.probes import Exists, Takes

aten: Any = torch.ops.aten
Dispatch = Callable[..., Any]


class MemoryIsRead(Exception):
    """A trace reads by address from a storage whose layout it has not kept; it must be traced again with
    `memory_is_kept`."""


def dims_keep_their_order(changes: Changes) -> None:
    """Keeps the order of dims in memory of tensors that are written. Raises MemoryIsRead during the trace if that does
    not suffice."""
    changes.wrap(FunctionalTensorMode, "__torch_dispatch__", functools.partial(_laid_out, _Order()))


def memory_is_kept(changes: Changes) -> None:
    """Keeps written tensors at their place in a copy of the whole storage."""
    changes.wrap(FunctionalTensorMode, "__torch_dispatch__", functools.partial(_laid_out, _Memory()))


class _Addresses:
    """Records which storages of a trace are read by address."""

    def __init__(self) -> None:
        self.memories: set[int] = set()

    def read(self, x: Any) -> None:
        """Called before ``x.as_strided(...)``."""
        self.memories.add(_memory(x))

    def made(self, x: Any, result: Any) -> None:
        """Called with the result of ``x.as_strided(...)``, or of its copying form."""
        if _memory(result) != _memory(x):
            return
        value = _value(x)
        with disable_proxy_modes_tracing():
            filled = known_equal(value.untyped_storage().nbytes(), value.numel() * value.element_size())
        result.symshape_reaches = "itself" if filled else "others"

    def viewed(self, args: Any, result: Any) -> None:
        """Called with a view of one of ``args``, which inherits what that can reach."""
        found = [reach for x in args if (reach := _reach(x))]
        for x in result if isinstance(result, list | tuple) else (result,):
            if found and isinstance(x, FunctionalTensor):
                x.symshape_reaches = found[0]  # type: ignore[attr-defined]

    def before(self, x: Any) -> torch.Tensor:
        """The value of a tensor before it is written. CompileError if it may reach beyond its operand."""
        if _reach(x) == "others":
            raise CompileError(
                "`as_strided` of a part of other memory is written to, which may write outside of the part",
                next_step="call `as_strided` of a tensor that has all of the memory, or run the function in eager mode",
            )
        return _value(x)


class _Order(_Addresses):
    """Keeps the order of dims only."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[tuple[int, bool]] = set()  # storages of tensors that now have their own storage

    def read(self, x: Any) -> None:
        super().read(x)
        if (_memory(x), False) in self.lost or (_memory(x), True) in self.lost and _reach(x):
            raise MemoryIsRead

    def placed(self, x: Any, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        """The new value of a tensor, laid out like ``old``."""
        new = _ordered(new, old)
        if not _is_placed_as(new, old):
            self.lost.add((_memory(x), bool(_reach(x))))
            if _memory(x) in self.memories and not _reach(x):
                raise MemoryIsRead
        return new


class _Memory(_Addresses):
    """Keeps the whole storage."""

    def before(self, x: Any) -> torch.Tensor:
        super().before(x)
        x.sync()
        return _value(x)

    def placed(self, _x: Any, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        """The new value of a tensor, written into a copy of the storage of ``old``."""
        new = _ordered(new, old)
        if _is_placed_as(new, old):
            return new
        written: torch.Tensor = aten.as_strided_scatter(old, new, old.size(), old.stride(), old.storage_offset())
        return written


def _laid_out(kept: _Order | _Memory, original: Dispatch) -> Dispatch:
    @functools.wraps(original)
    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BY_ADDRESS and _is_of_the_program():
            kept.read(args[0])
            result = original(self, func, types, args, kwargs)
            kept.made(args[0], result)
            return result
        if not _writes_elements(func):
            result = original(self, func, types, args, kwargs)
            if kept.memories and _is_view(func):
                kept.viewed(args, result)
            return result
        before = [(x, kept.before(x)) for x in _written(func, args, kwargs or {})]
        result = original(self, func, types, args, kwargs)
        for x, old in before:
            given = _value(x)
            placed = kept.placed(x, given, old)
            if placed is not given:
                x.replace_(placed)
                x.commit_update()
                x.sync()
        return result

    return dispatch


_BY_ADDRESS = (
    aten.as_strided.default,
    aten.as_strided_.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
)


def _is_of_the_program() -> bool:
    """Whether a call comes from the program; AOTAutograd also recreates inputs from their bases by ``as_strided``."""
    return bool(get_current_meta().get("stack_trace"))


@functools.cache
def _writes_elements(func: Any) -> bool:
    """Whether an operator writes elements of an operand, rather than changing its sizes."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    return bool(func._schema.is_mutable) and torch.Tag.inplace_view not in func.tags


@functools.cache
def _is_view(func: Any) -> bool:
    return isinstance(func, torch._ops.OpOverload) and any(one.alias_info is not None for one in func._schema.returns)


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            found = value if isinstance(value, list | tuple) else (value,)
            yield from (x for x in found if isinstance(x, FunctionalTensor) and x.layout is torch.strided)


def _reach(x: Any) -> str:
    """What a result of ``as_strided``, or a view of one, can reach: "itself" for only the tensor it was made of,
    "others" for possibly other parts of the storage; "" for all other tensors."""
    return getattr(x, "symshape_reaches", "")


def _memory(x: Any) -> int:
    storage: Any = x.untyped_storage()
    return int(storage._cdata)


def _value(x: Any) -> torch.Tensor:
    """The traced tensor inside of a functionalisation wrapper."""
    return torch._from_functional_tensor(x.elem)


def _ordered(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """``new`` laid out in the order of dims that ``old`` has in memory."""
    if not _all_equal(new.shape, old.shape) or _all_equal(new.stride(), old.stride()):
        return new
    return relaid(new, order_of_clone(old))


def _is_placed_as(new: torch.Tensor, old: torch.Tensor) -> bool:
    """Whether two tensors have equal strides, offsets and storage sizes; also true if their shapes differ."""
    if not _all_equal(new.shape, old.shape):
        return True  # another tensor
    where, there = ((*x.stride(), x.storage_offset(), x.untyped_storage().nbytes()) for x in (new, old))
    return _all_equal(where, there)


def _all_equal(left: Any, right: Any) -> bool:
    with disable_proxy_modes_tracing():  # the comparisons are not part of the graph
        return len(left) == len(right) and all(map(known_equal, left, right))


_FUNCTIONAL = "torch._subclasses.functional_tensor"
PROBES = (
    Takes(f"{_FUNCTIONAL}.FunctionalTensorMode.__torch_dispatch__", "self, func, types, args, kwargs"),
    Exists("torch._from_functional_tensor"),
    Exists("torch.fx.traceback.get_current_meta"),
    Exists("torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing"),
    Exists(f"{_FUNCTIONAL}.FunctionalTensor.replace_"),
    Exists(f"{_FUNCTIONAL}.FunctionalTensor.commit_update"),
    Exists(f"{_FUNCTIONAL}.FunctionalTensor.sync"),
)
