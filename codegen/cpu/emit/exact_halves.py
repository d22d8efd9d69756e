"""bf16 values that are widened and narrowed again without rounding in between: their bits are used directly.

A kernel computes in f32. Operations that change a sign, or select among bf16 values, give a bf16 value: the conversions
and the rounding, a dozen operations per element, would change nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from symshape.analysis.loops import Instr
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.state import State, Value

_SIGN = 0x8000
_CASTS = ("arith.extf", "arith.truncf")
_CHANGES = {"arith.negf": ("arith.xori", _SIGN), "math.absf": ("arith.andi", _SIGN - 1)}


def bits(state: State, instr: Instr, operands: list[Value], uniform: bool) -> Callable[[], str] | None:
    """A function that prints the result as bf16 bits, if that is exact, else None; a scalar if ``uniform``."""
    if not types.is_float(instr.dtype) or instr.dtype == "f16":
        return None
    if instr.op in _CASTS:
        return _of(state, operands[0], uniform)
    if instr.op in _CHANGES:
        return _changed(state, *_CHANGES[instr.op], _of(state, operands[0], uniform), uniform)
    if instr.op == "arith.select":
        return _selected(state, operands, uniform)
    return None


def _of(state: State, value: Value, uniform: bool) -> Callable[[], str] | None:
    """A function that prints the value's bits, in all lanes unless ``uniform``; None if they are not exact."""
    own = (lambda: value.name) if value.dtype == "bf16" else value.bits or _of_constant(state, value)
    if own is None or uniform or not value.uniform:
        return own
    return lambda: state.broadcast(own(), "i16")


def _of_constant(state: State, value: Value) -> Callable[[], str] | None:
    """``_of`` for constants: infinities, and numbers that bf16 represents exactly."""
    if value.literal is None or not types.is_float(value.dtype):
        return None
    number, found = float(value.literal), types.bfloat_bits(float(value.literal))
    return (lambda: state.constant(found, "i16")) if types.bfloat_value(found) == number else None


def _changed(
    state: State, operation: str, mask: int, own: Callable[[], str] | None, uniform: bool
) -> Callable[[], str] | None:
    if own is None:
        return None
    type_ = "i16" if uniform else state.vector("i16")

    def printed() -> str:
        constant = state.constant(mask, "i16") if uniform else state.splat(mask, "i16")
        return state.writer.pure(f"{operation} {own()}, {constant} : {type_}")

    return printed


def _selected(state: State, operands: list[Value], uniform: bool) -> Callable[[], str] | None:
    condition, *sides = operands
    left, right = (_of(state, side, uniform) for side in sides)
    if left is None or right is None:
        return None
    type_ = "i16" if uniform else state.vector("i16")
    bools = "" if condition.uniform else f"{state.vector('i1')}, "
    return lambda: state.writer.pure(f"arith.select {condition.name}, {left()}, {right()} : {bools}{type_}")
