"""``symshape::scatter``: writes at data-dependent indices, as an operator.

``lower-aten`` emits the calls, and ``outline-scatters`` makes kernels of them. The implementation here is the
reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

COMBINERS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}

_library: Any = torch.library.Library
_LIBRARY = _library("symshape", "FRAGMENT")
_LIBRARY.define(
    "scatter(Tensor x, Tensor values, int[] value_dims, bool repeats, SymInt[] sizes, int[] dims, Tensor[] indices, "
    "int[] index_dims, str combiner, bool wraps, bool checked=False) -> Tensor"
)


def scatter(
    x: torch.Tensor,
    values: torch.Tensor,
    value_dims: Sequence[int],
    repeats: bool,
    sizes: Sequence[int],
    dims: Sequence[int],
    indices: Sequence[torch.Tensor],
    index_dims: Sequence[int],
    combiner: str,
    wraps: bool,
    checked: bool = False,
) -> torch.Tensor:
    """A copy of ``x``, of its dtype, in which, for every point of a space of ``sizes`` in row-major order, one element
    is combined with the point's value.

    ``values``: its dim i runs along dim ``value_dims[i]`` of the space; a dim of size 1 is broadcast if ``repeats``,
    other dims may be longer than the space. ``dims``: for each dim of ``x`` the dim of the space that it runs along, or
    -1: it is indexed by the next one of ``indices``. ``index_dims``: the dims of the space that the dims of the indices
    run along, of one index after the other. ``combiner``: "set" replaces (the last write wins), else "add", "mul",
    "max" or "min". ``wraps``: negative indices count from the end. ``checked``: an earlier kernel has checked that all
    indices are in range. IndexError for an index out of range.
    """
    at, given = [], iter(indices)
    for dim, size in zip(dims, x.shape, strict=True):
        if dim >= 0:
            at.append(_along(torch.arange(sizes[dim], device=x.device), (dim,), sizes))
            continue
        index = next(given)
        index, index_dims = _along(index.to(torch.int64), index_dims[: index.dim()], sizes), index_dims[index.dim() :]
        if index.numel() and (bool((index >= size).any()) or bool((index < (-size if wraps else 0)).any())):
            raise IndexError("index out of range in self")
        at.append(torch.where(index < 0, index + size, index))
    if not repeats:
        values = values[tuple(slice(sizes[dim]) for dim in value_dims)]
    values = _along(values, value_dims, sizes).to(x.dtype)
    if combiner in ("set", "add"):
        return x.index_put(tuple(at), values, accumulate=combiner == "add")
    flat = torch.zeros(tuple(sizes), dtype=torch.int64, device=x.device)
    for index, size in zip(at, x.shape):
        flat = flat * size + index
    made = x.reshape(-1).scatter_reduce(0, flat.reshape(-1), values.reshape(-1), COMBINERS[combiner])
    return made.reshape(x.shape)


def _along(x: torch.Tensor, dims: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """Over the whole space, its dims at ``dims``."""
    shape = [1] * len(sizes)
    for dim, size in zip(dims, x.shape, strict=True):
        shape[dim] = size
    return x.permute(sorted(range(x.dim()), key=lambda i: dims[i])).reshape(shape).expand(tuple(sizes))


_LIBRARY.impl("scatter", scatter, "CompositeExplicitAutograd")
