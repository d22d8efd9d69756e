"""What scalar operations of ``arith`` and ``math`` mean, on whole torch tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir

Tensor = torch.Tensor
TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "index": torch.int64,
    "ui8": torch.uint8,
}
# An i1 in a sum is a number modulo 2.
_NO_BOOL = {operator.add: operator.xor, operator.sub: operator.xor, operator.mul: operator.and_}


def evaluate(op: Any, *operands: Tensor) -> Tensor:
    """The result of one operation; KeyError for one that bodies may not use."""
    name = op.name
    if name == "arith.constant":
        return constant(op)
    if name in _CASTS:
        return _CASTS[name](operands[0], str(op.operands[0].type), TYPES[str(op.results[0].type)])
    if name == "arith.cmpf":
        return _compare_floats(ir.IntegerAttr(op.attributes["predicate"]).value, *operands)
    if name == "arith.cmpi":
        return _compare_integers(ir.IntegerAttr(op.attributes["predicate"]).value, *operands)
    result = OPERATIONS[name](*operands)
    expected = TYPES[str(op.results[0].type)]
    assert result.dtype == expected, f"{name} gives {result.dtype} instead of {expected}"
    return result


def constant(op: Any) -> Tensor:
    attribute = op.attributes["value"]
    value = attribute.value
    return torch.tensor(bool(value) if str(attribute.type) == "i1" else value, dtype=TYPES[str(attribute.type)])


def _integers(function: Callable[..., Any]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: (_NO_BOOL[function] if x.dtype == torch.bool else function)(x, y)


def _divide(mode: str | None, unsigned: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
    """Integer division; the rest if ``mode`` is None. A divisor of 0 is read as 1: generated code guards it."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        dtype = x.dtype
        x, y = (_unsigned(v) for v in (x, y)) if unsigned else (x, y)
        y = torch.where(y == 0, torch.ones_like(y), y)
        return (torch.fmod(x, y) if mode is None else torch.div(x, y, rounding_mode=mode)).to(dtype)

    return function


def _unsigned(x: Tensor) -> Tensor:
    if x.dtype == torch.int8:
        return x.view(torch.uint8)
    assert x.dtype in (torch.bool, torch.uint8), f"an unsigned operation on {x.dtype}"
    return x.to(torch.uint8)


def _shift(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    def function(x: Tensor, y: Tensor) -> Tensor:
        width = x.element_size() * 8
        assert bool(((y >= 0) & (y < width)).all()), "a shift that is not in [0, width) is undefined"
        if kind == "left":
            return x << y
        if kind == "arithmetic":
            return x >> y
        mask = torch.bitwise_not(torch.full_like(x, -1) << (width - y).clamp(max=width - 1))
        return torch.where(y == 0, x, (x >> y) & mask)

    return function


_ORDERED = {1: torch.eq, 2: torch.gt, 3: torch.ge, 4: torch.lt, 5: torch.le}
_UNORDERED = {9: torch.gt, 10: torch.ge, 11: torch.lt, 12: torch.le, 13: torch.ne}


def _compare_floats(predicate: int, x: Tensor, y: Tensor) -> Tensor:
    unordered = torch.isnan(x) | torch.isnan(y)
    if predicate in _ORDERED:
        return _ORDERED[predicate](x, y)
    if predicate in _UNORDERED:
        return _UNORDERED[predicate](x, y) | unordered
    special = {
        6: lambda: (x != y) & ~unordered,
        7: lambda: ~unordered,
        8: lambda: (x == y) | unordered,
        14: lambda: unordered,
    }
    return special[predicate]()


_INTEGERS = {0: torch.eq, 1: torch.ne, 2: torch.lt, 3: torch.le, 4: torch.gt, 5: torch.ge}


def _compare_integers(predicate: int, x: Tensor, y: Tensor) -> Tensor:
    if predicate > 5:
        x, y, predicate = _unsigned(x), _unsigned(y), predicate - 4
    elif x.dtype == torch.bool and predicate > 1:
        raise AssertionError("a signed comparison of i1")
    return _INTEGERS[predicate](x, y)


def _unsigned_extremum(function: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: (
        function(_unsigned(x), _unsigned(y)).view(torch.int8 if x.dtype == torch.int8 else torch.uint8).to(x.dtype)
    )


def _fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return (x.double() * y.double() + z.double()).to(x.dtype)


def _sign_extend(x: Tensor, source: str, dtype: torch.dtype) -> Tensor:
    return -x.to(dtype) if source == "i1" else x.to(dtype)


def _zero_extend(x: Tensor, source: str, dtype: torch.dtype) -> Tensor:
    return _unsigned(x).to(dtype)


def _truncate(x: Tensor, source: str, dtype: torch.dtype) -> Tensor:
    return (x & 1).to(dtype) if dtype == torch.bool else x.to(dtype)


def _plain(x: Tensor, source: str, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


_CASTS: dict[str, Callable[[Tensor, str, torch.dtype], Tensor]] = {
    "arith.extf": _plain,
    "arith.truncf": _plain,
    "arith.sitofp": _sign_extend,
    "arith.uitofp": _zero_extend,
    "arith.fptosi": _plain,
    "arith.extsi": _sign_extend,
    "arith.extui": _zero_extend,
    "arith.trunci": _truncate,
    "arith.index_cast": _sign_extend,
    "builtin.unrealized_conversion_cast": lambda x, source, dtype: x.view(dtype),
}

OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "arith.addf": operator.add,
    "arith.subf": operator.sub,
    "arith.mulf": operator.mul,
    "arith.divf": operator.truediv,
    "arith.remf": torch.fmod,
    "arith.negf": operator.neg,
    "arith.maximumf": torch.maximum,
    "arith.minimumf": torch.minimum,
    "arith.addi": _integers(operator.add),
    "arith.subi": _integers(operator.sub),
    "arith.muli": _integers(operator.mul),
    "arith.divsi": _divide("trunc"),
    "arith.floordivsi": _divide("floor"),
    "arith.remsi": _divide(None),
    "arith.ceildivsi": lambda x, y: -_divide("floor")(-x, y),
    "arith.divui": _divide("floor", unsigned=True),
    "arith.remui": _divide(None, unsigned=True),
    "arith.maxsi": torch.maximum,
    "arith.minsi": torch.minimum,
    "arith.maxui": _unsigned_extremum(torch.maximum),
    "arith.minui": _unsigned_extremum(torch.minimum),
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.shli": _shift("left"),
    "arith.shrsi": _shift("arithmetic"),
    "arith.shrui": _shift("logical"),
    "arith.select": torch.where,
    "math.absf": torch.abs,
    "math.powf": torch.pow,
    "math.roundeven": torch.round,
    "math.fma": _fma,
    **{
        f"math.{name}": getattr(torch, name)
        for name in (
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "atan2",
            "erf",
            "erfc",
            "floor",
            "ceil",
            "trunc",
            "copysign",
        )
    },
}
