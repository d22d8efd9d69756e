"""Loads and stores that are contiguous along another dim than the lanes: square tiles, transposed in registers."""

from __future__ import annotations

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.schedule.sweep_order import Sweep

_SHORT = 8  # a dim known to be shorter gives tiles that are mostly empty


def tile_dim(kernel: LoopKernel, lane: Dim | None, sweeps: tuple[Sweep, ...]) -> tuple[Dim | None, tuple[Instr, ...]]:
    """The dim along which most reads that are strided along the lanes are contiguous, and those reads. None if there is
    none, and in kernels with reductions."""
    if lane is None or any(dim.reduced for dim in kernel.dims) or _is_short(lane):
        return None, ()
    strided = [instr for instr in sweeps[0].code if _strided(instr, lane)] if sweeps else []
    found = [
        (dim, tuple(instr for instr in strided if _stride(instr, dim) == 1))
        for dim in kernel.dims
        if dim is not lane and not _is_short(dim)
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


def new_buffer(state: State, instr: Instr) -> str:
    """Buffer on the stack for one tile of the read."""
    return state.stack_buffer(state.width * state.width, state.kernel.args[instr.arg].dtype)


def fill(state: State, instr: Instr, lane: Dim, buffer: str, rows: str, columns: str) -> None:
    """Fills the buffer from the current position of both dims: row i is the vector at tile index i."""
    _call(state, "fill", instr, lane, buffer, rows, columns)


def drain(state: State, instr: Instr, lane: Dim, buffer: str, rows: str, columns: str) -> None:
    """Stores the buffer to memory; the inverse of `fill`."""
    _call(state, "drain", instr, lane, buffer, rows, columns)


def _call(state: State, way: str, instr: Instr, lane: Dim, buffer: str, rows: str, columns: str) -> None:
    assert instr.address is not None
    kind = types.memory(state.kernel.args[instr.arg].dtype)
    stride = instr.address.coefficient(lane.name)
    assert stride is not None
    memory = state.writer.pure(
        f"llvm.getelementptr {state.pointers[instr.arg]}[{scalar(state, instr.address)}]"
        f" : (!llvm.ptr, i64) -> !llvm.ptr, {kind}"
    )
    helper = f"ss_{way}_{kind}_{state.width}"
    state.shared[helper] = (_fill_helper if way == "fill" else _drain_helper)(helper, kind, state.width)
    arguments = f"{memory}, {scalar(state, stride)}, {buffer}, {rows}, {columns}"
    state.writer.effect(f"llvm.call @{helper}({arguments}) : (!llvm.ptr, i64, !llvm.ptr, i64, i64) -> ()")


def _address(state: State, dtype: str, buffer: str, index: str) -> str:
    offset = state.writer.pure(f"arith.muli {index}, {state.constant(state.width, 'i64')} : i64")
    return state.element(buffer, offset, dtype)


def row(state: State, instr: Instr, buffer: str, index: str) -> Value:
    """The vector at tile index ``index``."""
    dtype = state.kernel.args[instr.arg].dtype
    vector, align = state.vector(types.memory(dtype)), types.size(dtype)
    address = _address(state, dtype, buffer, index)
    name = state.writer.emit(f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}")
    return Value(state.in_register(name, dtype, uniform=False), dtype, uniform=False)


def put(state: State, instr: Instr, buffer: str, index: str, value: Value) -> None:
    """Writes the value as the vector at tile index ``index``."""
    dtype = state.kernel.args[instr.arg].dtype
    vector, align = state.vector(types.memory(dtype)), types.size(dtype)
    name = state.in_memory(state.lanes(value), dtype, uniform=False)
    address = _address(state, dtype, buffer, index)
    state.writer.effect(f"llvm.store {name}, {address} {{alignment = {align} : i64}} : {vector}, !llvm.ptr")


_PARAMETERS = "%memory: !llvm.ptr, %stride: i64, %buffer: !llvm.ptr, %rows: i64, %columns: i64"


def _start(name: str, width: int) -> list[str]:
    """The head of a helper function: computes which elements of a strided run exist."""
    indices, lanes = f"vector<{width}xi64>", ", ".join(map(str, range(width)))
    return [
        f'llvm.func internal @{name}({_PARAMETERS}) attributes {{passthrough = ["noinline"]}} {{',
        f"  %iota = arith.constant dense<[{lanes}]> : {indices}",
        f"  %bound = vector.broadcast %rows : i64 to {indices}",
        f"  %mask = arith.cmpi slt, %iota, %bound : {indices}",
        "  %one = arith.constant 1 : i64",
        "  %thin = arith.cmpi eq, %rows, %one : i64",
    ]


def _runs(kind: str, count: int, memory: str = "%memory", columns: str = "%columns") -> list[str]:
    """The addresses at which the runs start; missing runs get the first one's."""
    lines = []
    for i in range(count):
        lines += [
            f"  %c{i} = arith.constant {i} : i64",
            f"  %inside{i} = arith.cmpi slt, %c{i}, {columns} : i64",
            f"  %offset{i} = arith.muli %c{i}, %stride : i64",
            f"  %at{i} = llvm.getelementptr {memory}[%offset{i}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}",
            f"  %safe{i} = llvm.select %inside{i}, %at{i}, {memory} : i1, !llvm.ptr",
        ]
    return lines


def _single(kind: str, width: int, body: list[str]) -> list[str]:
    """The case of runs of one element: the body, with the addresses of all runs in %all. Longer runs are faster
    transposed."""
    indices, pointers = f"vector<{width}xi64>", f"vector<{width}x!llvm.ptr>"
    return [
        "  scf.if %thin {",
        f"    %step = vector.broadcast %stride : i64 to {indices}",
        f"    %offsets = arith.muli %iota, %step : {indices}",
        f"    %limit = vector.broadcast %columns : i64 to {indices}",
        f"    %there = arith.cmpi slt, %iota, %limit : {indices}",
        f"    %all = llvm.getelementptr %memory[%offsets] : (!llvm.ptr, {indices}) -> {pointers}, {kind}",
        *(f"    {line}" for line in body),
        "  } else {",
    ]


def _shuffles(kind: str, width: int, registers: int, steps: int, name: str = "r") -> list[str]:
    """``steps`` perfect shuffles of the registers %r0_0, %r0_1, ...: each interleaves register i with register
    i + registers/2, which rotates the bits of (register, lane) by one. The results are %rSTEPS_0, ..."""
    vector, lines = f"vector<{width}x{kind}>", []
    orders = [", ".join(str(base + k // 2 + (k % 2) * width) for k in range(width)) for base in (0, width // 2)]
    for step in range(steps):
        for i in range(registers):
            pair = f"%{name}{step}_{i // 2}, %{name}{step}_{i // 2 + registers // 2}"
            lines.append(f"  %{name}{step + 1}_{i} = vector.shuffle {pair} [{orders[i % 2]}] : {vector}, {vector}")
    return lines


def _fill_helper(name: str, kind: str, width: int) -> str:
    """A function that transposes ``columns`` strided runs of ``rows`` elements into a width x width buffer: half of the
    runs at a time, unless all are short. Both take half of the registers."""
    size, vector, bools = types.size(kind), f"vector<{width}x{kind}>", f"vector<{width}xi1>"
    lines = _start(name, width)
    lines.append(f"  %zero = arith.constant dense<{'0.0' if types.is_float(kind) else '0'}> : {vector}")
    thin = kind in types.GATHERED
    if thin:
        lines += _single(
            kind,
            width,
            [
                f"%run = llvm.intr.masked.gather %all, %there, %zero {{alignment = {size} : i32}}"
                f" : (vector<{width}x!llvm.ptr>, {bools}, {vector}) -> {vector}",
                f"llvm.store %run, %buffer {{alignment = {size} : i64}} : {vector}, !llvm.ptr",
            ],
        )
    lines += [
        f"  %half = arith.constant {width // 2} : i64",
        "  %none = arith.constant 0 : i64",
        "  %many = arith.cmpi sgt, %columns, %half : i64",
        "  %low = arith.cmpi sle, %rows, %half : i64",
        "  %short = arith.andi %many, %low : i1",
        "  scf.if %short {",
        *_runs(kind, width),
        *_short_runs(kind, width),
        "  } else {",
        "  %last = llvm.select %many, %half, %none : i1, i64",
        "  %end = arith.addi %last, %one : i64",
        "  scf.for %first = %none to %end step %half : i64 {",
        *_half_of_runs(kind, width),
        "  }",
        "  }",
    ]
    return "\n".join([*lines, *(["  }"] if thin else []), "  llvm.return", "}"])


def _masked_load(kind: str, width: int, run: int, mask: str = "%mask", zero: str = "%zero") -> str:
    return (
        f"llvm.intr.masked.load %safe{run}, {mask}, {zero} {{alignment = {types.size(kind)} : i32}}"
        f" : (!llvm.ptr, vector<{width}xi1>, vector<{width}x{kind}>) -> vector<{width}x{kind}>"
    )


def _half_of_runs(kind: str, width: int) -> list[str]:
    """Transposes width/2 runs from %first on: after log2(width/2) shuffles register q holds the elements of rows 2q and
    2q + 1."""
    half, size = width // 2, types.size(kind)
    steps, vector = half.bit_length() - 1, f"vector<{width}x{kind}>"
    lines = [
        "  %skipped = arith.muli %first, %stride : i64",
        f"  %from = llvm.getelementptr %memory[%skipped] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}",
        f"  %to = llvm.getelementptr %buffer[%first] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}",
        "  %left = arith.subi %columns, %first : i64",
        *_runs(kind, half, "%from", "%left"),
    ]
    lines += [f"  %f0_{i} = {_masked_load(kind, width, i)}" for i in range(half)]
    lines += _shuffles(kind, width, half, steps, "f")
    for row in range(width):
        register, lanes = f"%f{steps}_{row // 2}", ", ".join(str(row % 2 * half + k) for k in range(half))
        lines += [
            f"  %fh{row} = vector.shuffle {register}, {register} [{lanes}] : {vector}, {vector}",
            f"  %fto{row} = llvm.getelementptr %to[{row * width}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"  llvm.store %fh{row}, %fto{row} {{alignment = {size} : i64}} : vector<{half}x{kind}>, !llvm.ptr",
        ]
    return lines


def _short_runs(kind: str, width: int) -> list[str]:
    """Transposes runs of at most width/2 elements: register q starts with runs 2q and 2q + 1."""
    half, size = width // 2, types.size(kind)
    steps, vector, part = width.bit_length() - 1, f"vector<{width}x{kind}>", f"vector<{half}x{kind}>"
    lower, both = ", ".join(map(str, range(half))), ", ".join(map(str, range(width)))
    lines = [
        f"  %hmask = vector.shuffle %mask, %mask [{lower}] : vector<{width}xi1>, vector<{width}xi1>",
        f"  %hzero = vector.shuffle %zero, %zero [{lower}] : {vector}, {vector}",
    ]
    lines += [f"  %h{i} = {_masked_load(kind, half, i, '%hmask', '%hzero')}" for i in range(width)]
    lines += [f"  %s0_{q} = vector.shuffle %h{2 * q}, %h{2 * q + 1} [{both}] : {part}, {part}" for q in range(half)]
    lines += _shuffles(kind, width, half, steps, "s")
    for i in range(half):
        lines += [
            f"  %sto{i} = llvm.getelementptr %buffer[{i * width}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"  llvm.store %s{steps}_{i}, %sto{i} {{alignment = {size} : i64}} : {vector}, !llvm.ptr",
        ]
    return lines


def _drain_helper(name: str, kind: str, width: int) -> str:
    """A function that transposes a width x width buffer into ``columns`` strided runs of ``rows`` elements."""
    size, vector, bools = types.size(kind), f"vector<{width}x{kind}>", f"vector<{width}xi1>"
    lines = _start(name, width)
    lines.append(f"  %none = arith.constant dense<false> : {bools}")
    thin = kind in types.GATHERED and width == 16  # AVX2 has no scatter
    if thin:
        lines += _single(
            kind,
            width,
            [
                f"%run = llvm.load %buffer {{alignment = {size} : i64}} : !llvm.ptr -> {vector}",
                f"llvm.intr.masked.scatter %run, %all, %there {{alignment = {size} : i32}}"
                f" : {vector}, {bools} into vector<{width}x!llvm.ptr>",
            ],
        )
    lines += _runs(kind, width)
    for i in range(width):
        lines += [
            f"  %from{i} = llvm.getelementptr %buffer[{i * width}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"  %r0_{i} = llvm.load %from{i} {{alignment = {size} : i64}} : !llvm.ptr -> {vector}",
        ]
    steps = width.bit_length() - 1
    lines += _shuffles(kind, width, width, steps)
    for i in range(width):
        lines += [
            f"  %mask{i} = arith.select %inside{i}, %mask, %none : {bools}",
            f"  llvm.intr.masked.store %r{steps}_{i}, %safe{i}, %mask{i} {{alignment = {size} : i32}}"
            f" : {vector}, {bools} into !llvm.ptr",
        ]
    return "\n".join([*lines, *(["  }"] if thin else []), "  llvm.return", "}"])
