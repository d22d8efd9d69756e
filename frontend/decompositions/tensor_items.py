"""Items of tensors at indices that C++ would make constant: ``x[:, n - 1]`` at a size, ``x[i]`` at data.

C++ specialises a size among the indices, with a graph for each value. A data-dependent index is a tensor ``i`` without
dims, or a number read from one.

Reads are views by ``select``, as in eager mode, and so are writes at a size. A write at a data-dependent index is an
``index_put``, which reads the index where it is used: a row of a key-value cache is written without waiting for the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.fake_tensors import is_batched
from symshape.frontend.bridge.operators import items_are_indexed
from symshape.frontend.bridge.symbolic_sizes import is_unbacked

Chosen = Callable[[Any], bool]
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)  # bytes are a mask


def get_item(x: torch.Tensor, key: Any) -> torch.Tensor:
    """``x[key]``"""
    view, rest = _selected(x, tuple(map(_with_numbers, elements_of(key))), _is_number)
    return view[rest]


def _with_numbers(one: Any) -> Any:
    """A slice whose bounds are not tensors."""
    if not isinstance(one, slice):
        return one
    return slice(*(bound.item() if _is_index(bound) else bound for bound in (one.start, one.stop, one.step)))


def _is_bound_in_data(one: Any) -> bool:
    return isinstance(one, slice) and any(map(_is_index, (one.start, one.stop, one.step)))


def set_item(x: torch.Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``"""
    x, elements = _selected(x, tuple(map(_with_numbers, elements_of(key))), _is_size)
    if not any(map(_is_in_data, elements)) or not all(_is_basic(one) or _is_index(one) for one in elements):
        view, rest = _selected(x, elements, _is_number)
        view[rest or ...] = value
        return
    elements = tuple(torch.full((), one, device=x.device) if _is_unbacked(one) else one for one in elements)
    indices, count = _indices(x, elements), sum(map(_is_index, elements))
    whole = tuple(slice(None) if _is_index(one) else one for one in elements)
    if not all(one is Ellipsis or one == slice(None) for one in whole):
        x = x[whole]  # else the tensor itself is written to, and not all of it as a part of it
    torch.ops.aten.index_put_.default(x, indices, _spread(value, x, x.dim() - count))


def has_number(args: Sequence[Any], _: Mapping[str, Any]) -> bool:
    """Whether C++ would specialise an index of the key, the second argument: a data-dependent one, or a size in a tuple
    (a size alone stays symbolic)."""
    x, key = args[:2]
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or items_are_indexed():
        return False
    sizes = isinstance(key, tuple) and any(map(_is_size, key)) and not any(isinstance(one, list) for one in key)
    return sizes or any(_is_in_data(one) or _is_bound_in_data(one) for one in elements_of(key))


def elements_of(key: Any) -> tuple[Any, ...]:
    """The elements of an index: a key that is no tuple is one."""
    return key if isinstance(key, tuple) else (key,)


def selections(rank: int, elements: tuple[Any, ...], chosen: Chosen | None = None) -> list[tuple[int, int]]:
    """For each element of a key that is ``chosen`` (by default those that C++ would specialise) its dim, after earlier
    ones are removed, and its position."""
    found, dim = [], 0
    others = rank - sum(map(_dims, elements))
    for position, one in enumerate(elements):
        if (chosen or _is_number)(one):
            found.append((dim, position))
        else:
            dim += others if one is Ellipsis else _dims(one)
    return found


def _is_index(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.dim() == 0 and one.dtype in _INTEGERS and not is_batched(one)


def _is_unbacked(one: Any) -> bool:
    return isinstance(one, torch.SymInt) and is_unbacked(one)


def _is_in_data(one: Any) -> bool:
    return _is_index(one) or _is_unbacked(one)


def _is_size(one: Any) -> bool:
    return isinstance(one, torch.SymInt) and not is_unbacked(one)


def _is_number(one: Any) -> bool:
    return _is_in_data(one) or _is_size(one)


def _is_basic(one: Any) -> bool:
    return one is None or one is Ellipsis or (isinstance(one, (slice, int, torch.SymInt)) and not isinstance(one, bool))


def _dims(one: Any) -> int:
    """The number of dims that an element of a key indexes, except for an ellipsis."""
    if one is None or one is Ellipsis or isinstance(one, bool):
        return 0
    is_mask = isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8)
    return one.dim() if is_mask else 1


def _selected(x: torch.Tensor, elements: tuple[Any, ...], chosen: Chosen) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """``x`` at the indices that are chosen, whose dims go, and the other elements. Integers are selected before tensors
    are looked at, as in eager mode."""
    for dim, position in selections(x.dim(), elements, chosen):
        index = elements[position]
        at: Any = index.item() if isinstance(index, torch.Tensor) else index
        x = x.select(dim, at)
    return x, tuple(one for one in elements if not chosen(one))


def _indices(x: torch.Tensor, elements: tuple[Any, ...]) -> list[torch.Tensor | None]:
    """The index tensors, each at its dim of ``x[key]`` with all of the dim in its place."""
    found: list[torch.Tensor | None] = []
    others = x.dim() - sum(map(_dims, elements))
    for one in elements:
        if _is_index(one):
            found.append(one)
        elif one is None or isinstance(one, slice):
            found.append(None)
        elif one is Ellipsis:
            found += [None] * others
    return found


def _spread(value: Any, like: torch.Tensor, rank: int) -> torch.Tensor:
    """The value to write, with at most ``rank`` dims: assignment drops leading ones."""
    if not isinstance(value, torch.Tensor):
        return torch.full((), value, dtype=like.dtype, device=like.device)
    for _ in range(value.dim() - rank):
        value = value.squeeze(0)
    return value.to(like.device, like.dtype)
