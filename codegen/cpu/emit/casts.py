"""Conversions between element types. Half types are converted through f32 in both directions, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from symshape.artifact.element_types import HALF
from symshape.codegen.cpu.emit import half_integers, long_conversions, types
from symshape.codegen.cpu.emit.state import State

Cast = Callable[[State, str, str, str, bool], str]  # (state, name, from dtype, to dtype, uniform)


def _type(state: State, element: str, uniform: bool) -> str:
    return element if uniform else state.vector(element)


def _constant(state: State, value: int, element: str, uniform: bool) -> str:
    return state.constant(value, element) if uniform else state.splat(value, element)


def _cast(state: State, operation: str, name: str, source: str, target: str, uniform: bool) -> str:
    if source == target:
        return name
    return state.writer.pure(f"{operation} {name} : {_type(state, source, uniform)} to {_type(state, target, uniform)}")


def to_f32(state: State, name: str, dtype: str, uniform: bool) -> str:
    """A half value widened (exactly)."""
    if dtype == "f16" and not state.target.converts_f16:
        return half_integers.widen(state, name, uniform)
    if dtype == "f16":
        return _cast(state, "arith.extf", name, "f16", "f32", uniform)
    wide = _cast(state, "arith.extui", name, "i16", "i32", uniform)
    amount = _constant(state, 16, "i32", uniform)
    shifted = state.writer.pure(f"arith.shli {wide}, {amount} : {_type(state, 'i32', uniform)}")
    return _cast(state, "arith.bitcast", shifted, "i32", "f32", uniform)


def from_f32(state: State, name: str, dtype: str, uniform: bool) -> str:
    """An f32 rounded to a half type: nearest even, NaN stays NaN."""
    if dtype == "f16" and not state.target.converts_f16:
        return half_integers.narrow(state, name, uniform)
    if dtype == "f16":
        if uniform:  # LLVM moves roundings of a scalar below copysign, whose f64 sign it then rounds to f16: a libcall
            name = state.writer.pure(f'llvm.call_intrinsic "llvm.arithmetic.fence"({name}) : (f32) -> f32')
        return _cast(state, "arith.truncf", name, "f32", "f16", uniform)
    pure, type_ = state.writer.pure, _type(state, "i32", uniform)
    constant = partial(_constant, state, element="i32", uniform=uniform)
    bits = _cast(state, "arith.bitcast", name, "f32", "i32", uniform)
    odd = pure(f"arith.andi {pure(f'arith.shrui {bits}, {constant(16)} : {type_}')}, {constant(1)} : {type_}")
    bias = pure(f"arith.addi {odd}, {constant(0x7FFF)} : {type_}")
    rounded = pure(f"arith.shrui {pure(f'arith.addi {bits}, {bias} : {type_}')}, {constant(16)} : {type_}")
    nan = pure(f"arith.cmpf uno, {name}, {name} : {_type(state, 'f32', uniform)}")
    condition = "" if uniform else f"{state.vector('i1')}, "
    chosen = pure(f"arith.select {nan}, {constant(0x7FC0)}, {rounded} : {condition}{type_}")
    return _cast(state, "arith.trunci", chosen, "i32", "i16", uniform)


def _float_to_float(state: State, name: str, source: str, target: str, uniform: bool) -> str:
    if source == target:
        return name
    if source in HALF:
        name, source = to_f32(state, name, source, uniform), "f32"
    if target in HALF:
        return from_f32(state, _float_to_float(state, name, source, "f32", uniform), target, uniform)
    operation = "arith.extf" if target == "f64" else "arith.truncf"
    return _cast(state, operation, name, source, target, uniform)


def _from_integer(operation: str, state: State, name: str, source: str, target: str, uniform: bool) -> str:
    if target in HALF:
        return from_f32(state, _from_integer(operation, state, name, source, "f32", uniform), target, uniform)
    register = types.register(source)
    lanes = operation == "arith.sitofp" and register == "i64" and not (uniform or state.target.converts_long)
    if lanes and target == "f64":  # to f32, what was loaded is converted as fast lane by lane
        return long_conversions.float_of_long(state, name, target)
    return _cast(state, operation, name, register, target, uniform)


def _to_integer(operation: str, state: State, name: str, source: str, target: str, uniform: bool) -> str:
    """Float to integer, via i32 for narrow types: their low bits, as C++ on x86 gives for values out of range."""
    if source in HALF:
        name, source = to_f32(state, name, source, uniform), "f32"
    register = types.register(target)
    if operation == "arith.fptosi" and register == "i64" and not (uniform or state.target.converts_long):
        return long_conversions.long_from_float(state, name, source)
    if types.bits(target) >= 32:
        return _cast(state, operation, name, source, register, uniform)
    wide = _cast(state, "arith.fptosi", name, source, "i32", uniform)
    return _cast(state, "arith.trunci", wide, "i32", register, uniform)


def _integer(extend: str, state: State, name: str, source: str, target: str, uniform: bool) -> str:
    source, target = types.register(source), types.register(target)
    narrower = types.bits(target) < types.bits(source)
    return _cast(state, "arith.trunci" if narrower else extend, name, source, target, uniform)


def _bitcast(state: State, name: str, source: str, target: str, uniform: bool) -> str:
    return _cast(state, "arith.bitcast", name, types.register(source), types.register(target), uniform)


CASTS: dict[str, Cast] = {
    "arith.extf": _float_to_float,
    "arith.truncf": _float_to_float,
    "arith.sitofp": partial(_from_integer, "arith.sitofp"),
    "arith.uitofp": partial(_from_integer, "arith.uitofp"),
    "arith.fptosi": partial(_to_integer, "arith.fptosi"),
    "arith.fptoui": partial(_to_integer, "arith.fptoui"),
    "arith.extsi": partial(_integer, "arith.extsi"),
    "arith.extui": partial(_integer, "arith.extui"),
    "arith.trunci": partial(_integer, "arith.extsi"),
    "arith.index_cast": partial(_integer, "arith.extsi"),
    "arith.index_castui": partial(_integer, "arith.extui"),
    "arith.bitcast": _bitcast,
    "builtin.unrealized_conversion_cast": _bitcast,
}
