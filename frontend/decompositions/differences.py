"""Differences and derivatives along a dim, and spectral norms, without numbers of sizes.

The C++ of ``diff`` guards on the dim being long enough, that of the others reads sizes as integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """``torch.diff``: the dim is ``n`` shorter, and empty where it was not longer than that."""
    parts = [one for one in (prepend, input, append) if one is not None]
    x = torch.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        behind, before = torch.ops.aten.slice(x, dim, 1), torch.ops.aten.slice(x, dim, 0, -1)
        x = behind ^ before if x.dtype == torch.bool else behind - before
    return x


def takes_diff(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of ``diff`` has a symbolic dim and the arguments of the replacement."""
    x, n = args[0] if args else kwargs.get("input"), args[1] if len(args) > 1 else kwargs.get("n", 1)
    known = kwargs.keys() <= {"input", "n", "dim", "prepend", "append"}
    return known and type(n) is int and n > 0 and isinstance(x, Tensor) and x.dim() > 0 and _is_symbolic(x)


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """``torch.gradient`` with a distance of the points for each dim, or one for all
    (aten/src/ATen/native/ReduceOps.cpp). RuntimeError for a dim that is too short."""
    dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    distances = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    text = "torch.gradient expected each dimension size to be at least edge_order+1"
    for d in dims:
        torch._check(bool(input.size(d) >= edge_order + 1), lambda: text)
    return tuple(_derivative(input, d, distance, edge_order) for d, distance in zip(dims, distances))


def _derivative(x: Tensor, dim: int, distance: Any, edge_order: int) -> Tensor:
    def part(first: int, last: int | None = None) -> Tensor:
        found: Tensor = torch.ops.aten.slice(x, dim, first, last)
        return found

    center = (part(2) - part(0, -2)) / distance / 2
    if edge_order == 1:
        before, behind = (part(1, 2) - part(0, 1)) / distance, (part(-1) - part(-2, -1)) / distance
    else:
        before = part(0, 1) * -1.5 / distance + part(1, 2) * 2 / distance + part(2, 3) * -0.5 / distance
        behind = part(-3, -2) * 0.5 / distance - part(-2, -1) * 2 / distance + part(-1) * 1.5 / distance
    return torch.cat([before, center, behind], dim)


def takes_gradient(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of ``gradient`` has symbolic sizes or distances, and distances that are numbers."""
    if len(args) != 1 or not isinstance(args[0], Tensor) or not args[0].is_floating_point() or not args[0].dim():
        return False
    spacing, dim = kwargs.get("spacing", 1), kwargs.get("dim")
    distances = spacing if isinstance(spacing, (list, tuple)) else [spacing]
    dims = range(args[0].dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    are_valid = all(type(one) in numbers for one in distances) and all(
        -args[0].dim() <= d < args[0].dim() for d in dims
    )
    fits = not isinstance(spacing, (list, tuple)) or len(spacing) == len(dims)
    is_symbolic = _is_symbolic(args[0]) or any(isinstance(one, numbers[2:]) for one in distances)
    return are_valid and fits and is_symbolic and kwargs.get("edge_order", 1) in (1, 2)


def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """``torch.linalg.matrix_norm`` of order 2 or -2: the largest or smallest singular value."""
    values = torch.linalg.svdvals((A if dtype is None else A.to(dtype)).movedim(dim, (-2, -1)))
    found = values.amax(-1) if ord > 0 else values.amin(-1)
    for d in sorted(one % A.dim() for one in dim) if keepdim else ():
        found = found.unsqueeze(d)
    return found


def takes_matrix_norm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of ``matrix_norm`` is for singular values of matrices of symbolic size, which have some."""
    x = args[0] if args else kwargs.get("A")
    order = args[1] if len(args) > 1 else kwargs.get("ord", "fro")
    dim = args[2] if len(args) > 2 else kwargs.get("dim", (-2, -1))
    if type(order) not in (int, float) or abs(order) != 2 or "out" in kwargs or not isinstance(x, Tensor):
        return False
    if not x.is_floating_point() or len(dim) != 2 or any(not -x.dim() <= d < x.dim() for d in dim):
        return False
    return _is_symbolic(x) and dim[0] % x.dim() != dim[1] % x.dim() and all(bool(x.size(d) > 0) for d in dim)


def _is_symbolic(x: Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in x.shape)
