"""Conversions between vectors of f64 and of 64-bit integers below 2**51.

x86 has instructions for 64-bit integers since AVX-512DQ; for older processors LLVM converts lane by lane. Adding
2**52 + 2**51 to a number below 2**51 leaves it in the low bits of the significand ("How to efficiently perform
double/int64 conversions with SSE/AVX?", https://stackoverflow.com/questions/41144668).
"""

from __future__ import annotations

from typing import Final

from symshape.codegen.cpu.emit.state import State

LIMIT: Final = 1 << 51  # magnitudes below it are converted exactly
_OFFSET: Final = float((1 << 52) + (1 << 51))
_BITS: Final = 0x4338_0000_0000_0000  # of `_OFFSET`


def float_of_small(state: State, name: str) -> str:
    """i64 as f64, right for magnitudes below `LIMIT`."""
    pure, integers, double = state.writer.pure, state.vector("i64"), state.vector("f64")
    if state.target.converts_long:
        return pure(f"arith.sitofp {name} : {integers} to {double}")
    bits = pure(f"arith.addi {name}, {state.splat(_BITS, 'i64')} : {integers}")
    moved = pure(f"arith.bitcast {bits} : {integers} to {double}")
    return pure(f"arith.subf {moved}, {state.splat(_OFFSET, 'f64')} : {double}")


def small_from_float(state: State, name: str) -> str:
    """Integral f64 as i64, right for magnitudes below `LIMIT`."""
    pure, integers, double = state.writer.pure, state.vector("i64"), state.vector("f64")
    if state.target.converts_long:
        return pure(f"arith.fptosi {name} : {double} to {integers}")
    moved = pure(f"arith.addf {name}, {state.splat(_OFFSET, 'f64')} : {double}")
    bits = pure(f"arith.bitcast {moved} : {double} to {integers}")
    return pure(f"arith.subi {bits}, {state.splat(_BITS, 'i64')} : {integers}")
