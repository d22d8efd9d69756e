"""Gathers at indices computed from the point alone, or read for each lane (padding, grids, interpolation).

The indices of a vector are often consecutive, and a vector is loaded: a gather takes ten times as long. With AVX-512,
indices that lie within two vectors (images enlarged or halved) are two loads and a shuffle. Which case holds is tested
at run time for each vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import Instr, LoopKernel
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.state import State

_OF_DATA = frozenset({"load", "extract", "reduce", "carried", "element", "scanned", "combine"})
_PERMUTED: Final = {"f32": "ps", "i32": "d"}  # types whose vector is one register, and the instruction for them


def is_of_points(kernel: LoopKernel, instr: Instr, lane: str | None) -> bool:
    """Whether all indices of an "extract" are computed from the point, or from data that is read for each lane and is
    the same in all rows."""
    made = {result: one for one in kernel.code for result in one.results}
    dims = {dim.name for dim in kernel.dims}

    def is_of_lanes(one: Instr) -> bool:
        return one.op == "load" and one.address is not None and dims.intersection(one.address.symbols) == {lane} != dims

    wanted, seen = list(instr.operands), set()
    while wanted:
        number = wanted.pop()
        if number in seen:
            continue
        seen.add(number)
        if number not in made or made[number].op in _OF_DATA and not is_of_lanes(made[number]):
            return False
        wanted += made[number].operands
    return True


@dataclass(frozen=True)
class Access:
    """How elements at offsets, a vector of i64, are read. ``vector``: one from an offset on, of the active lanes;
    ``part``: one from an offset on, where a mask allows; ``gather``: each element by itself; ``some``: an i1, whether
    there are elements ("": there are)."""

    dtype: str
    vector: Callable[[str], str]
    part: Callable[[str, str], str]
    gather: Callable[[], str]
    some: str


def neighbours(state: State, offsets: str, access: Access) -> str:
    """The elements at the offsets."""
    pure, lanes, bools = state.writer.pure, state.vector("i64"), state.vector("i1")
    start = pure(f"vector.extract {offsets}[0] : i64 from {lanes}")  # of a lane that is active
    run = pure(f"arith.cmpi eq, {offsets}, {state.along(start, state.constant(1, 'i64'), 'i64')} : {lanes}")
    if state.mask is not None:
        idle = pure(f"arith.xori {state.mask}, {state.splat(True, 'i1')} : {bools}")
        run = pure(f"arith.ori {run}, {idle} : {bools}")
    whole = pure(f"vector.reduction <and>, {run} : {bools} into i1")
    result = [state.vector(types.register(access.dtype))]
    apart = access.gather
    if state.target.scalef and state.width == 16 and access.dtype in _PERMUTED:
        apart = _near(state, offsets, start, access)
    (found,) = state.writer.branch(whole, result, lambda: [access.vector(start)], lambda: [apart()])
    return found


def _near(state: State, offsets: str, start: str, access: Access) -> Callable[[], str]:
    """Reads the elements from two vectors, if the offsets lie between those of the first and of the last lane, and
    within two vectors. Nothing is read behind the last one. Whether they do is written at once: it holds of all tensors
    that are read at these offsets."""
    pure, lanes = state.writer.pure, state.vector("i64")
    bools, narrow, count = state.vector("i1"), state.vector("i32"), state.width
    last = pure(f"vector.extract {offsets}[{count - 1}] : i64 from {lanes}")
    span = pure(f"arith.subi {last}, {start} : i64")
    apart = pure(f"arith.subi {offsets}, {state.broadcast(start, 'i64')} : {lanes}")
    inside = pure(f"arith.cmpi ule, {apart}, {state.broadcast(span, 'i64')} : {lanes}")
    near = pure(f"vector.reduction <and>, {inside} : {bools} into i1")
    close = pure(f"arith.cmpi ult, {span}, {state.constant(2 * count, 'i64')} : i64")
    for more in (close, state.whole if state.mask is not None else "", access.some):
        near = pure(f"arith.andi {near}, {more} : i1") if more else near

    def permuted() -> list[str]:
        indices = pure(f"arith.trunci {apart} : {lanes} to {narrow}")
        ends = [state.broadcast(pure(f"arith.trunci {span} : i64 to i32"), "i32")]
        ends.append(pure(f"arith.subi {ends[0]}, {state.splat(count, 'i32')} : {narrow}"))
        begins = [start, pure(f"arith.addi {start}, {state.constant(count, 'i64')} : i64")]
        masks = [pure(f"arith.cmpi sle, {state.iota('i32')}, {end} : {narrow}") for end in ends]
        low, high = (access.part(begin, mask) for begin, mask in zip(begins, masks, strict=True))
        vector = state.vector(access.dtype)
        name = f"llvm.x86.avx512.vpermi2var.{_PERMUTED[access.dtype]}.512"
        return [
            pure(
                f'llvm.call_intrinsic "{name}"({low}, {indices}, {high}) : ({vector}, {narrow}, {vector}) -> {vector}',
                at_least=state.writer.depth,
            )
        ]

    return lambda: state.writer.branch(near, [state.vector(access.dtype)], permuted, lambda: [access.gather()])[0]
