"""Conversions between f16 and f32 in integer arithmetic, for processors without instructions for them (no F16C).

LLVM would call functions (``__extendhfsf2``, ``__truncsfhf2``) that need not be in any library of the process. No
intermediate f32 is subnormal, so `torch.set_flush_denormal` has no effect.
"""

from __future__ import annotations

from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.vector_math.floats import Floats

_DROPPED = 13  # bits of f32's significand that f16 has not
_REBIAS = (127 - 15) << 23
_INFINITY = 0x7F800000
_LEAST_NORMAL = (127 - 14) << 23  # f16's, as an f32
_BEYOND = (127 + 16) << 23  # the least power of two that f16 has not
_HALF = 126 << 23  # 0.5: its last bit is worth what f16's subnormal numbers count


def _type(state: State, element: str, uniform: bool) -> str:
    return element if uniform else state.vector(element)


def widen(state: State, name: str, uniform: bool) -> str:
    """An f16 as f32, exactly."""
    of = Floats(state, "f32", uniform)
    word = of.cast("bitcast", name, _type(state, "f16", uniform), _type(state, "i16", uniform))
    bits = of.cast("extui", word, _type(state, "i16", uniform), of.integers)
    size = of.int_op("andi", bits, 0x7FFF)
    moved = of.int_op("shli", size, _DROPPED)
    large = of.int_compare("uge", size, 0x7C00)  # infinite or NaN
    normal = of.int_op("addi", moved, of.int_select(large, 2 * _REBIAS, _REBIAS))
    small = of.bits(of.mul(of.to_float(size), 2.0**-24))
    found = of.int_select(of.int_compare("ult", size, 0x0400), small, normal)
    sign = of.int_op("shli", of.int_op("andi", bits, 0x8000), 16)
    return of.from_bits(of.int_op("ori", found, sign))


def narrow(state: State, name: str, uniform: bool) -> str:
    """An f32 rounded to f16: nearest even, NaN stays NaN."""
    of = Floats(state, "f32", uniform)
    bits = of.bits(name)
    size = of.int_op("andi", bits, 0x7FFFFFFF)
    odd = of.int_op("andi", of.int_op("shrui", size, _DROPPED), 1)
    rounded = of.int_op("addi", of.int_op("addi", size, odd), (1 << _DROPPED - 1) - 1)
    normal = of.int_op("shrui", of.int_op("subi", rounded, _REBIAS), _DROPPED)
    # The addition rounds to the multiples of f16's least number, which are then the significand.
    small = of.int_op("subi", of.bits(of.add(of.from_bits(size), 0.5)), _HALF)
    found = of.int_select(of.int_compare("ult", size, _LEAST_NORMAL), small, normal)
    found = of.int_select(of.int_compare("uge", size, _BEYOND), 0x7C00, found)
    found = of.int_select(of.int_compare("ugt", size, _INFINITY), 0x7E00, found)
    sign = of.int_op("andi", of.int_op("shrui", bits, 16), 0x8000)
    word = of.cast("trunci", of.int_op("ori", found, sign), of.integers, _type(state, "i16", uniform))
    return of.cast("bitcast", word, _type(state, "i16", uniform), _type(state, "f16", uniform))
