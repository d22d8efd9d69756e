"""Reads that are contiguous along another dim than the lanes: square tiles, loaded by rows, transposed in registers."""

from __future__ import annotations

from symshape.codegen.cpu import types
from symshape.codegen.cpu.expressions import scalar
from symshape.codegen.cpu.schedule import Pass
from symshape.codegen.cpu.state import State, Value
from symshape.codegen.loops import Dim, Instr, LoopKernel

_SHORT = 8  # a dim known to be shorter gives tiles that are mostly empty


def tile_dim(kernel: LoopKernel, lane: Dim | None, passes: tuple[Pass, ...]) -> tuple[Dim | None, tuple[Instr, ...]]:
    """The dim along which most reads that are strided along the lanes are contiguous, and those reads. None where there
    is none, and in kernels with reductions."""
    if lane is None or any(dim.reduced for dim in kernel.dims) or _is_short(lane):
        return None, ()
    strided = [instr for instr in passes[0].code if _strided(instr, lane)] if passes else []
    found = [
        (dim, tuple(instr for instr in strided if _stride(instr, dim) == 1))
        for dim in kernel.dims if dim is not lane and not _is_short(dim)
    ]
    dim, reads = max(found, key=lambda one: len(one[1]), default=(None, ()))
    return (dim, reads) if reads else (None, ())


def _is_short(dim: Dim) -> bool:
    size = dim.size.as_int()
    return size is not None and size < _SHORT


def _stride(instr: Instr, dim: Dim) -> int | None:
    assert instr.address is not None
    stride = instr.address.coefficient(dim.name)
    return None if stride is None else stride.as_int()


def _strided(instr: Instr, lane: Dim) -> bool:
    if instr.op != "load" or instr.address is None or instr.mask:
        return False
    return instr.address.coefficient(lane.name) is not None and _stride(instr, lane) not in (0, 1)


def buffer(state: State, instr: Instr) -> str:
    """Room on the stack for one tile of the read."""
    kind = types.memory(state.kernel.args[instr.arg].dtype)
    count = state.constant(state.width * state.width, "i64")
    with state.writer.within(0):
        return state.writer.emit(f"llvm.alloca {count} x {kind} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")


def fill(state: State, instr: Instr, lane: Dim, room: str, rows: str, columns: str) -> None:
    """Fills the buffer from the current position of both dims: row i is the vector at tile index i."""
    assert instr.address is not None
    kind = types.memory(state.kernel.args[instr.arg].dtype)
    stride = instr.address.coefficient(lane.name)
    assert stride is not None
    source = state.writer.pure(f"llvm.getelementptr {state.pointers[instr.arg]}[{scalar(state, instr.address)}]"
                               f" : (!llvm.ptr, i64) -> !llvm.ptr, {kind}")
    helper = f"ss_transpose_{kind}_{state.width}"
    state.shared[helper] = _helper(helper, kind, state.width)
    arguments = f"{source}, {scalar(state, stride)}, {room}, {rows}, {columns}"
    state.writer.effect(f"llvm.call @{helper}({arguments}) : (!llvm.ptr, i64, !llvm.ptr, i64, i64) -> ()")


def row(state: State, instr: Instr, room: str, index: str) -> Value:
    """The vector at tile index ``index``."""
    dtype = state.kernel.args[instr.arg].dtype
    kind = types.memory(dtype)
    offset = state.writer.pure(f"arith.muli {index}, {state.constant(state.width, 'i64')} : i64")
    address = state.writer.pure(f"llvm.getelementptr {room}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}")
    align = f"{{alignment = {types.size(dtype)} : i64}}"
    name = state.writer.emit(f"llvm.load {address} {align} : !llvm.ptr -> {state.vector(kind)}")
    if dtype == "i1":
        name = state.writer.pure(f"arith.cmpi ne, {name}, {state.splat(0, 'i8')} : {state.vector('i8')}")
    return Value(name, dtype, uniform=False)


def _helper(name: str, kind: str, width: int) -> str:
    """A function that transposes ``columns`` strided runs of ``rows`` elements into a width x width buffer.

    log2(width) perfect shuffles of the registers: each interleaves register i with register i + width/2.
    """
    size = types.size(kind)
    vector, bools, places = f"vector<{width}x{kind}>", f"vector<{width}xi1>", f"vector<{width}xi64>"
    lanes = ", ".join(map(str, range(width)))
    zero = "0.0" if types.is_float(kind) else "0"
    parameters = "%source: !llvm.ptr, %stride: i64, %room: !llvm.ptr, %rows: i64, %columns: i64"
    lines = [
        f'llvm.func internal @{name}({parameters}) attributes {{passthrough = ["noinline"]}} {{',
        f"  %iota = arith.constant dense<[{lanes}]> : {places}",
        f"  %zero = arith.constant dense<{zero}> : {vector}",
        f"  %bound = vector.broadcast %rows : i64 to {places}",
        f"  %mask = arith.cmpi slt, %iota, %bound : {places}",
    ]
    for i in range(width):
        lines += [f"  %c{i} = arith.constant {i} : i64", f"  %inside{i} = arith.cmpi slt, %c{i}, %columns : i64",
                  f"  %offset{i} = arith.muli %c{i}, %stride : i64",
                  f"  %at{i} = llvm.getelementptr %source[%offset{i}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}",
                  f"  %safe{i} = llvm.select %inside{i}, %at{i}, %source : i1, !llvm.ptr",
                  f"  %r0_{i} = llvm.intr.masked.load %safe{i}, %mask, %zero {{alignment = {size} : i32}}"
                  f" : (!llvm.ptr, {bools}, {vector}) -> {vector}"]
    orders = [", ".join(str(base + k // 2 + (k % 2) * width) for k in range(width)) for base in (0, width // 2)]
    steps = width.bit_length() - 1
    for step in range(steps):
        for i in range(width):
            pair = f"%r{step}_{i // 2}, %r{step}_{i // 2 + width // 2}"
            lines.append(f"  %r{step + 1}_{i} = vector.shuffle {pair} [{orders[i % 2]}] : {vector}, {vector}")
    for i in range(width):
        lines += [f"  %to{i} = llvm.getelementptr %room[{i * width}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
                  f"  llvm.store %r{steps}_{i}, %to{i} {{alignment = {size} : i64}} : {vector}, !llvm.ptr"]
    return "\n".join([*lines, "  llvm.return", "}"])
