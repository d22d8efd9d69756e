"""Classifies the results of a captured program once, at capture, so that each replay can recreate them.

A result is one of: an input or a view of one; memory that the program allocated, which each replay copies; anything
else, which is the same for all calls at these sizes (a size, None, a constant of the graph).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.runtime.torch_c import differentiable_view, reinterpret_tensor, view_base


class NotCaptured(Exception):
    """The reason why a program, or one combination of sizes, is not captured."""


@dataclass(frozen=True)
class Layout:
    """The layout of a view. ``offset`` is relative to the start of the base tensor, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class FromInput:
    """An input, by position, or a view of it."""

    position: int
    layout: Layout | None
    shown: bool  # autograd knows it as a view

    def make(self, args: Sequence[Any], made: Sequence[torch.Tensor]) -> Any:
        return _view(args[self.position], self.layout, self.shown)


@dataclass(frozen=True)
class FromConstant:
    """A constant of the program, or a view of it."""

    constant: torch.Tensor
    layout: Layout | None
    shown: bool

    def make(self, args: Sequence[Any], made: Sequence[torch.Tensor]) -> Any:
        return _view(self.constant, self.layout, self.shown)


@dataclass(frozen=True)
class Copied:
    """A tensor in a copy of memory that the program allocated. ``root``: layout of the tensor of which autograd knows
    it as a view."""

    memory: int
    layout: Layout
    root: Layout | None

    def make(self, args: Sequence[Any], made: Sequence[torch.Tensor]) -> Any:
        whole = made[self.memory]
        if self.root is None:
            return _view(whole, self.layout, False)
        offset = self.layout.offset - self.root.offset
        own = Layout(self.layout.sizes, self.layout.strides, offset)
        return _view(_view(whole, self.root, False), own, True)


@dataclass(frozen=True)
class Same:
    """A value that is the same at each call."""

    value: Any

    def make(self, args: Sequence[Any], made: Sequence[torch.Tensor]) -> Any:
        return self.value


def _view(x: torch.Tensor, layout: Layout | None, shown: bool) -> torch.Tensor:
    if layout is None:
        return x
    return (differentiable_view if shown else reinterpret_tensor)(x, layout.sizes, layout.strides, layout.offset)


Result = FromInput | FromConstant | Copied | Same


@dataclass(frozen=True)
class Results:
    """All results of a program. ``memory``: a flat tensor for each storage that results are copied from. ``flat``: the
    results are one plain tuple, which needs no pytree."""

    memory: list[torch.Tensor]
    results: list[Result]
    structure: Any
    flat: bool

    def make(self, args: Sequence[Any], made: Sequence[torch.Tensor]) -> Any:
        """The program's result for a call with inputs ``args``; ``made`` are copies of ``memory``."""
        results = [one.make(args, made) for one in self.results]
        return tuple(results) if self.flat else pytree.tree_unflatten(results, self.structure)


def read_results(
    returned: Any,
    inputs: Mapping[int, torch.Tensor],
    constants: Sequence[Any],
    device: torch.device,
    at: Callable[[torch.Tensor], torch.Tensor],
) -> Results:
    """Classifies what a captured program returned. ``inputs``: its input tensors by position; ``at``: returns a tensor
    at another one's address that does not own the memory. NotCaptured if a replay could not recreate a result."""
    flat, structure = pytree.tree_flatten(returned)
    bases = [*inputs.items(), *((None, x) for x in constants if isinstance(x, torch.Tensor))]
    memory: dict[Any, int] = {}
    tensors: list[torch.Tensor] = []
    results: list[Result] = []
    for x in flat:
        base = _base(x, bases) if isinstance(x, torch.Tensor) else None
        if not isinstance(x, torch.Tensor):
            results.append(Same(x))
        elif base is not None:
            results.append(_of_base(x, *base))
        elif x.device != device:
            raise NotCaptured(f"a result lies on {x.device}")
        else:
            results.append(_copied(x, memory, tensors))
    is_flat = type(returned) is tuple and [*map(id, flat)] == [*map(id, returned)]
    return Results([at(x) for x in tensors], results, structure, is_flat)


Base = tuple[int | None, torch.Tensor]  # position of an input (None for a constant), and the tensor


def _base(x: torch.Tensor, bases: Sequence[Base]) -> Base | None:
    """The input or constant that a result is, or shares memory with; else None."""
    itself = next((base for base in bases if base[1] is x), None)
    address = _storage(x)
    return itself or next((base for base in bases if address and _storage(base[1]) == address), None)


def _of_base(x: torch.Tensor, position: int | None, base: torch.Tensor) -> Result:
    layout = None if x is base else _layout(x, base)
    shown = view_base(x) is not None
    return FromConstant(base, layout, shown) if position is None else FromInput(position, layout, shown)


def _copied(x: torch.Tensor, memory: dict[Any, int], tensors: list[torch.Tensor]) -> Copied:
    """A result to be copied. Each entry of ``memory`` is a whole storage: results that share memory share its copy."""
    key = _storage(x) or -1 - len(memory)  # tensors without memory share nothing
    if key not in memory:
        memory[key] = len(tensors)
        count = x.untyped_storage().nbytes() // x.itemsize
        tensors.append(x.detach().as_strided((count,), (1,), 0))
    whole = tensors[memory[key]]
    if whole.dtype != x.dtype:
        raise NotCaptured("results of several types share memory")
    base = view_base(x)
    return Copied(memory[key], _layout(x, whole), _layout(base, whole) if base is not None else None)


def _storage(x: torch.Tensor) -> int:
    """The address of a tensor's storage; 0 if it has no memory."""
    return x.untyped_storage().data_ptr()


def _layout(x: torch.Tensor, base: torch.Tensor) -> Layout:
    if x.dtype != base.dtype:
        raise NotCaptured("a result is a view of another type")
    return Layout(tuple(x.shape), x.stride(), int(x.storage_offset() - base.storage_offset()))
