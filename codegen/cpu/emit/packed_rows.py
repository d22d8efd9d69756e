"""Vectors of whole rows: a vector holds as many short rows as fit, whose length may be known at run time only.

The lanes' indices in their rows are computed once for a kernel's call. What is contiguous over rows is loaded and
stored as a vector. Other elements (a bias, a factor for each row, a part of a ``cat``) lie close to each other: one or
two vectors are loaded, and one instruction permutes them by these indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.index_arithmetic import floor_divide_lanes, lane_offsets, scalar
from symshape.codegen.cpu.emit.state import Packed, State
from symshape.codegen.cpu.schedule.layout import Layout
from symshape.prover.numbers.expr import Expr, product

_FAR = 1 << 40  # elements: no two that a vector reads are so far apart

Result = TypeVar("Result")


def rows_per_vector(state: State, layout: Layout) -> str:
    """The number of rows in a vector."""
    return scalar(state, Expr.const(state.width) // _length(layout))


def _length(layout: Layout) -> Expr:
    return product(dim.size for dim in layout.packed)


def vector_of_rows(state: State, layout: Layout, position: str, end: str, body: Callable[[int], Result]) -> Result:
    """Calls body(0) for the rows from ``position`` on that fit into a vector; rows at or after ``end`` are inactive."""
    lane, pure, narrow = layout.lane, state.writer.pure, state.vector("i32")
    assert lane is not None
    rows, length = rows_per_vector(state, layout), scalar(state, _length(layout))
    state.symbols[lane.name], state.lane = position, lane.name
    state.symbols.update((dim.name, state.constant(0, "i64")) for dim in layout.packed)
    left = pure(f"arith.minsi {pure(f'arith.subi {end}, {position} : i64')}, {rows} : i64")

    def lanes_of(count: str) -> str:
        number = pure(f"arith.trunci {pure(f'arith.muli {count}, {length} : i64')} : i64 to i32")
        return pure(f"arith.cmpi slt, {state.iota('i32')}, {state.broadcast(number, 'i32')} : {narrow}")

    full = pure(f"arith.cmpi eq, {left}, {rows} : i64")
    sizes = {dim.name: dim.size for dim in layout.packed}
    state.packed = Packed(sizes, _lane_indices(state, lane.name, sizes), lanes_of(rows), full)
    count = pure(f"arith.muli {left}, {length} : i64")
    state.whole = pure(f"arith.cmpi eq, {count}, {state.constant(state.width, 'i64')} : i64")
    state.mask = lanes_of(left)
    result = body(0)
    state.lane = state.mask = state.packed = None
    return result


def _lane_indices(state: State, rows: str, sizes: dict[str, Expr]) -> dict[str, str]:
    """For each dim, what the lanes add to the index of lane 0: mixed-radix digits of the lane number."""
    pure, lanes = state.writer.pure, state.vector("i64")
    left, indices = state.iota(), {}
    for name in reversed(sizes):
        size = state.broadcast(scalar(state, sizes[name]), "i64")
        quotient = floor_divide_lanes(state, left, size)
        indices[name] = pure(f"arith.subi {left}, {pure(f'arith.muli {quotient}, {size} : {lanes}')} : {lanes}")
        left = quotient
    return {**indices, rows: left}


def permuted(
    state: State,
    strides: dict[str, Expr],
    dtype: str,
    conditions: list[str],
    read: Callable[[str, str], str],
    gather: Callable[[], str],
) -> str:
    """Elements at the lanes' indices, for strides along the dims: permuted from the vectors that contain them all, if
    these are few, else gathered. ``conditions``: lanes that read; others are 0. ``read(offset, mask)`` loads a
    vector, ``offset`` elements after that of lane 0."""
    packed, vectors = state.packed, _vectors(state, dtype)
    assert packed is not None
    if not vectors:
        return gather()
    pure, lanes, bools = state.writer.pure, state.vector("i64"), state.vector("i1")
    offsets, reads = lane_offsets(state, strides), packed.active
    for condition in conditions:
        reads = pure(f"arith.andi {reads}, {condition} : {bools}")
    ends = []
    for kind, outside in (("minsi", _FAR), ("maxsi", -_FAR)):
        inside = pure(f"arith.select {reads}, {offsets}, {state.splat(outside, 'i64')} : {bools}, {lanes}")
        ends.append(pure(f"vector.reduction <{kind}>, {inside} : {lanes} into i64"))
    first, last = ends
    span = pure(f"arith.subi {last}, {first} : i64")

    def close(count: int) -> str:
        inside = pure(f"arith.cmpi ult, {span}, {state.constant(count * state.width, 'i64')} : i64")
        return pure(f"arith.andi {inside}, {packed.full} : i1")

    def near(count: int) -> list[str]:
        found = _permute(state, offsets, first, span, dtype, read, count)
        if not conditions:
            return [found]
        kind = types.register(dtype)
        chosen = f"arith.select {reads}, {found}, {state.splat(0, kind)} : {bools}, {state.vector(kind)}"
        return [pure(chosen, at_least=state.writer.depth)]

    def apart() -> list[str]:
        return [gather()] if vectors < 2 else state.writer.branch(close(2), kinds, lambda: near(2), lambda: [gather()])

    kinds = [state.vector(types.register(dtype))]
    return state.writer.branch(close(1), kinds, lambda: near(1), apart)[0]


def _vectors(state: State, dtype: str) -> int:
    """The number of vectors of which elements are permuted; elements of 64 bits fill two registers."""
    return state.target.permutes // (2 if types.size(dtype) > 4 else 1)


def _permute(
    state: State, offsets: str, first: str, span: str, dtype: str, read: Callable[[str, str], str], count: int
) -> str:
    """The elements at the offsets, from ``count`` vectors that begin with the first one; nothing is read behind the
    last."""
    pure, width, narrow = state.writer.pure, state.width, state.vector("i32")
    lanes, wide = state.vector("i64"), state.constant(width, "i64")
    apart = pure(f"arith.subi {offsets}, {state.broadcast(first, 'i64')} : {lanes}")
    if types.size(dtype) > 4:
        return _permute_long(state, apart, first, span, dtype, read)
    indices = pure(f"arith.trunci {apart} : {lanes} to {narrow}")
    short = pure(f"arith.trunci {span} : i64 to i32")

    def part(offset: str, end: str) -> str:
        mask = pure(f"arith.cmpi sle, {state.iota('i32')}, {state.broadcast(end, 'i32')} : {narrow}")
        return _as_words(state, read(offset, mask), dtype)

    words = [part(first, short)]
    if count == 2:
        rest = pure(f"arith.subi {short}, {state.constant(width, 'i32')} : i32")
        words.append(part(pure(f"arith.addi {first}, {wide} : i64"), rest))
        call = f'"llvm.x86.avx512.vpermi2var.d.512"({words[0]}, {indices}, {words[1]}) : ({narrow}, {narrow}, {narrow})'
    elif width == 16:
        call = f'"llvm.x86.avx512.permvar.si.512"({words[0]}, {indices}) : ({narrow}, {narrow})'
    else:
        call = f'"llvm.x86.avx2.permd"({words[0]}, {indices}) : ({narrow}, {narrow})'
    found = pure(f"llvm.call_intrinsic {call} -> {narrow}", at_least=state.writer.depth)
    return _from_words(state, found, dtype)


def _permute_long(state: State, apart: str, first: str, span: str, dtype: str, read: Callable[[str, str], str]) -> str:
    """The same for elements of 64 bits, from one vector, whose halves are the two registers."""
    pure, depth, kind, half = state.writer.pure, state.writer.depth, types.memory(dtype), state.width // 2
    lanes, part, whole = state.vector("i64"), f"vector<{half}xi64>", state.vector(kind)
    near = state.broadcast(pure(f"arith.trunci {span} : i64 to i32"), "i32")
    found = read(first, pure(f"arith.cmpi sle, {state.iota('i32')}, {near} : {state.vector('i32')}"))
    if kind != "i64":
        found = pure(f"vector.bitcast {found} : {whole} to {lanes}", at_least=depth)
    orders = [", ".join(map(str, range(start, start + half))) for start in (0, half)]
    halves = [pure(f"vector.shuffle {found}, {found} [{o}] : {lanes}, {lanes}", at_least=depth) for o in orders]
    each = []
    for order in orders:
        indices = pure(f"vector.shuffle {apart}, {apart} [{order}] : {lanes}, {lanes}")
        call = f'"llvm.x86.avx512.vpermi2var.q.512"({halves[0]}, {indices}, {halves[1]}) : ({part}, {part}, {part})'
        each.append(pure(f"llvm.call_intrinsic {call} -> {part}", at_least=depth))
    both = ", ".join(map(str, range(state.width)))
    found = pure(f"vector.shuffle {each[0]}, {each[1]} [{both}] : {part}, {part}", at_least=depth)
    return found if kind == "i64" else pure(f"vector.bitcast {found} : {lanes} to {whole}", at_least=depth)


def _as_words(state: State, name: str, dtype: str) -> str:
    """Elements as i32, of their bits."""
    pure, kind, narrow = state.writer.pure, types.memory(dtype), state.vector("i32")
    number = f"i{8 * types.size(dtype)}"
    depth = state.writer.depth
    if kind != number:
        name = pure(f"vector.bitcast {name} : {state.vector(kind)} to {state.vector(number)}", at_least=depth)
    return name if number == "i32" else pure(f"arith.extui {name} : {state.vector(number)} to {narrow}", at_least=depth)


def _from_words(state: State, name: str, dtype: str) -> str:
    """The inverse, in the register form of the dtype."""
    if dtype == "i1":
        compared = f"arith.cmpi ne, {name}, {state.splat(0, 'i32')} : {state.vector('i32')}"
        return state.writer.pure(compared, at_least=state.writer.depth)
    pure, kind, narrow = state.writer.pure, types.memory(dtype), state.vector("i32")
    number = f"i{8 * types.size(dtype)}"
    depth = state.writer.depth
    if number != "i32":
        name = pure(f"arith.trunci {name} : {narrow} to {state.vector(number)}", at_least=depth)
    if kind != number:
        name = pure(f"vector.bitcast {name} : {state.vector(number)} to {state.vector(kind)}", at_least=depth)
    return name
