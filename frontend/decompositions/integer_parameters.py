"""Functions of PyTorch whose C++ takes an integer where a program has a size: the size would become a number.

Each is written with functions that take sizes, and computes what the usual one does. Which they are: those of
``native_functions.yaml`` with a parameter ``int`` that is a size (``steps``), or that read the sizes of a tensor as
integers (``fill_diagonal_``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

_torch: Any = torch  # these have no types


def linspace(
    start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, device: Any = None, layout: Any = None
) -> torch.Tensor:
    """``torch.linspace`` of strided tensors that are not complex. (steps,), from the nearer end, so that both ends are
    exact; integers are computed in float64 and truncated. RuntimeError of a negative number of steps."""
    torch._check(steps >= 0, lambda: "number of steps must be non-negative")
    dtype = dtype or torch.get_default_dtype()
    wide = torch.float64 if not dtype.is_floating_point else torch.promote_types(dtype, torch.float32)
    at = torch.arange(steps, device=device)
    first, last = (_number(one, wide, at.device) for one in (start, end))
    step = (last - first) / _torch.sym_max(steps - 1, 1)
    rising, falling = first + step * at.to(wide), last - step * (steps - 1 - at).to(wide)
    return torch.where(at < _torch.sym_max(steps // 2, 1), rising, falling).to(dtype)


def _number(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype, device=device)


def fill_diagonal_(x: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
    """``Tensor.fill_diagonal_`` of a matrix; ``wrap``: of a tall one, the diagonal goes on below an empty row."""
    if not wrap:
        x.diagonal().fill_(fill_value)
        return x
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return x.masked_fill_(rows[:, None] % (x.shape[1] + 1) == columns, fill_value)


@dataclass(frozen=True)
class Replacement:
    """``applies``: whether ``function`` takes the place of the usual one, of its arguments."""

    function: Callable[..., Any]
    applies: Callable[[Sequence[Any], Mapping[str, Any]], bool]


def _has_symbolic_steps(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    steps = args[2] if len(args) > 2 else kwargs.get("steps")
    numbers = (*args, kwargs.get("start"), kwargs.get("end"))
    dtypes = [kwargs.get("dtype"), *(x.dtype for x in numbers if isinstance(x, torch.Tensor))]
    known = kwargs.keys() <= {"start", "end", "steps", "dtype", "device", "layout"}
    is_complex = any(isinstance(x, complex) for x in numbers) or any(d is not None and d.is_complex for d in dtypes)
    return (
        isinstance(steps, torch.SymInt) and known and kwargs.get("layout") in (None, torch.strided) and not is_complex
    )


def _is_matrix_of_symbolic_size(args: Sequence[Any], _: Mapping[str, Any]) -> bool:
    x = args[0]
    return x.dim() == 2 and any(isinstance(size, torch.SymInt) for size in x.shape)


REPLACEMENTS: Final[Mapping[Any, Replacement]] = {
    torch.linspace: Replacement(linspace, _has_symbolic_steps),
    torch.Tensor.fill_diagonal_: Replacement(fill_diagonal_, _is_matrix_of_symbolic_size),
}


def replaced(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function to be traced for one of PyTorch, of these arguments: in most cases that one."""
    found = REPLACEMENTS.get(function)
    return function if found is None or not found.applies(args, kwargs) else found.function
