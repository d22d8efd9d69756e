"""PyTorch's type promotion, without torch: tensors with dims outrank zero-dim ones, those outrank numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from functools import reduce
from typing import Any

from symshape.artifact.element_types import FLOATS, HALF, NATIVE
from symshape.passes.lowering.aten.builder import Tensor, Unsupported
from symshape.prover.numbers.expr import Expr

# The type of a Python float beside integers; PyTorch's default dtype.
DEFAULT_FLOAT = "f32"
# Signed integers hold all smaller ones; "ui8" needs i16.
_RANK = {"i1": 0, "ui8": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "bf16": 5, "f32": 6, "f64": 7}
# Two different dtypes of the same rank.
_NEXT = {1: "i16", 5: "f32"}


def promote_types(x: str, y: str) -> str:
    """The smallest dtype to which both promote (torch.promote_types)."""
    require_native(x, y)
    if _RANK[x] == _RANK[y]:
        return x if x == y else _NEXT[_RANK[x]]
    return max(x, y, key=_RANK.__getitem__)


def promote(operands: Iterable[Any]) -> str:
    """The common dtype of tensors and numbers (torch.result_type); None operands are left out."""
    categories: list[list[str]] = [[], [], []]
    for x in operands:
        if x is not None:
            categories[_category(x)].append(_dtype(x))
    kinds = [reduce(promote_types, dtypes) for dtypes in categories if dtypes]
    return reduce(lambda lower, higher: _outrank(higher, lower), reversed(kinds))


def nearest(value: Any, dtype: str) -> Any:
    """A Python number rounded to a half dtype, via f32 as PyTorch converts; unchanged for other dtypes."""
    if dtype not in HALF or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value):
        return value
    try:
        single = struct.pack("<f", value)
        if dtype == "f16":
            return struct.unpack("<e", struct.pack("<e", *struct.unpack("<f", single)))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    (word,) = struct.unpack("<I", single)
    to_even = word + 0x7FFF + ((word >> 16) & 1)
    return struct.unpack("<f", struct.pack("<I", to_even & 0xFFFF0000))[0]


def require_native(*dtypes: str) -> None:
    """Unsupported for a dtype that generated code does not hold (complex, float8, wide unsigned)."""
    for dtype in dtypes:
        if dtype not in NATIVE:
            raise Unsupported(f"dtype {dtype}")


def _category(x: Any) -> int:
    return 2 if not isinstance(x, Tensor) else 0 if x.rank else 1


def _dtype(x: Any) -> str:
    if isinstance(x, Tensor):
        return x.dtype
    if isinstance(x, bool):
        return "i1"
    return "i64" if isinstance(x, (int, Expr)) else DEFAULT_FLOAT


def _outrank(higher: str, lower: str) -> str:
    """The dtype of two categories: the lower one only counts if it is of a higher kind: bool < integer < float."""
    if higher in FLOATS:
        return higher
    return promote_types(higher, lower) if higher == "i1" or lower in FLOATS else higher
