"""Gathers at indices computed from the point alone (padding, grids): vector loads where the indices are consecutive.

Whether they are is tested at run time for each vector; a gather takes ten times as long as a vector load.
"""

from __future__ import annotations

from collections.abc import Callable

from symshape.analysis.loops import Instr, LoopKernel
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.state import State

_OF_DATA = frozenset({"load", "extract", "reduce", "carried", "element", "scanned", "combine"})


def is_of_points(kernel: LoopKernel, instr: Instr) -> bool:
    """Whether all indices of an "extract" are computed from the point alone, not from data."""
    made = {result: one for one in kernel.code for result in one.results}
    wanted, seen = list(instr.operands), set()
    while wanted:
        number = wanted.pop()
        if number in seen:
            continue
        seen.add(number)
        if number not in made or made[number].op in _OF_DATA:
            return False
        wanted += made[number].operands
    return True


def neighbours(
    state: State, offsets: str, dtype: str, loaded: Callable[[str], str], gathered: Callable[[], str]
) -> str:
    """The elements at the offsets, a vector of i64. ``loaded`` prints a vector load from an offset, ``gathered`` a
    gather."""
    pure, lanes, bools = state.writer.pure, state.vector("i64"), state.vector("i1")
    start = pure(f"vector.extract {offsets}[0] : i64 from {lanes}")  # of a lane that is active
    run = pure(f"arith.cmpi eq, {offsets}, {state.along(start, state.constant(1, 'i64'), 'i64')} : {lanes}")
    if state.mask is not None:
        idle = pure(f"arith.xori {state.mask}, {state.splat(True, 'i1')} : {bools}")
        run = pure(f"arith.ori {run}, {idle} : {bools}")
    whole = pure(f"vector.reduction <and>, {run} : {bools} into i1")
    result = [state.vector(types.register(dtype))]
    (found,) = state.writer.branch(whole, result, lambda: [loaded(start)], lambda: [gathered()])
    return found
