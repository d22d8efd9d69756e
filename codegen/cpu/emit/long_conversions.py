"""Conversions between vectors of 64-bit integers and of floats where the processor has no instructions for them: those
of small integers, unless a lane holds a larger number, for which LLVM's code runs."""

from __future__ import annotations

from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.vector_math.floats import Floats
from symshape.codegen.cpu.vector_math.small_integers import LIMIT, float_of_small, small_from_float


def float_of_long(state: State, name: str, target: str) -> str:
    """i64 as f32 or f64, rounded once."""
    floats = Floats(state, "f64", uniform=False)
    moved = floats.int_op("addi", name, LIMIT)
    large = floats.int_compare("uge", moved, 2 * LIMIT)
    found = float_of_small(state, name)
    if target == "f32":
        found = floats.of("f32").narrow(found)
    return _unless(state, large, name, found, "sitofp", "i64", target)


def long_from_float(state: State, name: str, source: str) -> str:
    """f32 or f64 as i64, rounded toward zero."""
    floats = Floats(state, "f64", uniform=False)
    wide = floats.of("f32").widen(name) if source == "f32" else name
    whole = floats.op("math.trunc", wide)
    large = floats.compare("uge", floats.op("math.absf", whole), float(LIMIT))  # NaN as well
    return _unless(state, large, name, small_from_float(state, whole), "fptosi", source, "i64")


def _unless(state: State, large: str, name: str, found: str, operation: str, source: str, target: str) -> str:
    """What was found, or LLVM's conversion of all lanes if any is large."""
    before, after = state.vector(source), state.vector(target)
    helper = f"ss_{operation}_{source}_{target}_{state.width}"
    state.shared[helper] = "\n".join(
        [
            f'llvm.func internal @{helper}(%value: {before}) -> {after} attributes {{passthrough = ["noinline"]}} {{',
            f"  %converted = arith.{operation} %value : {before} to {after}",
            f"  llvm.return %converted : {after}",
            "}",
        ]
    )
    call = f"llvm.call @{helper}({name}) : ({before}) -> {after}"
    floats = Floats(state, "f64", uniform=False)
    return floats.if_any(large, lambda: state.writer.emit(call), found, after)
