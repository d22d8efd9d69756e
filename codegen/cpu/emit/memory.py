"""Loads, stores and data-dependent reads of kernel arguments."""

from __future__ import annotations

from symshape.analysis.loops import Instr
from symshape.codegen.cpu.emit import packed_rows, types
from symshape.codegen.cpu.emit.index_arithmetic import per_lane, scalar
from symshape.codegen.cpu.emit.neighbours import Access, is_of_points, neighbours
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.schedule.interleave import Member, picked, spread
from symshape.machine.targets import CPU_CACHE_LINE, CPU_MOST_INTERLEAVED
from symshape.prover.numbers.expr import Expr, product

_FAR = 1 << 30


def load(state: State, instr: Instr) -> Value:
    """The element at the address; 0 in lanes where the mask is false."""
    assert instr.address is not None
    if state.rows is not None and not any(state.rows[0] in one.symbols for one in (instr.address, *instr.mask)):
        with state.writer.within(state.rows[1]):
            return _load(state, instr)
    return _load(state, instr)


def _load(state: State, instr: Instr) -> Value:
    assert instr.address is not None
    dtype = state.kernel.args[instr.arg].dtype
    stride = state.stride(instr.address)
    scalars, vectors = _conditions(state, instr.mask)
    pointer = state.pointers[instr.arg]
    if stride is not None and stride.as_int() == 0 and not vectors:
        base = state.element(pointer, scalar(state, instr.address), dtype)
        return Value(_load_scalar(state, base, dtype, scalars), dtype)
    if instr in state.groups and state.mask is None:
        return Value(_picked(state, instr, state.groups[instr]), dtype, uniform=False)
    mask = _all(state, [*vectors, *(state.broadcast(scalars, "i1") for _ in (1,) if scalars)])
    if state.packed is not None and (stride is None or stride.as_int() != 1):
        return _of_packed(state, instr, [*vectors, *(state.broadcast(scalars, "i1") for _ in (1,) if scalars)])
    if stride is not None and stride.as_int() in (1, -1):
        some = scalars if not vectors else _any(state, mask)
        read = _contiguous if stride.as_int() == 1 else _backward
        return Value(read(state, pointer, instr.address, dtype, mask, some), dtype, uniform=False)
    if mask is None and stride is not None and 2 <= (stride.as_int() or 0) <= CPU_MOST_INTERLEAVED:
        return Value(_every(state, instr, stride.as_int() or 0), dtype, uniform=False)
    if scalars:
        pointer = _select(state, scalars, pointer, state.safe)
    if stride is None:
        addresses = _elements(state, pointer, per_lane(state, instr.address), dtype)
    else:
        base = state.element(pointer, scalar(state, instr.address), dtype)
        step = state.along(state.constant(0, "i64"), scalar(state, stride), "i64")
        addresses = _elements(state, base, step, dtype)
    return Value(_gather(state, addresses, dtype, mask, far=state.kernel.is_scan), dtype, uniform=False)


def prefetch(state: State, instr: Instr) -> None:
    """Prefetches the cache lines of a vector's elements; the address may be invalid."""
    assert instr.address is not None
    dtype = state.kernel.args[instr.arg].dtype
    first = _contiguous_address(state, state.pointers[instr.arg], instr.address, dtype)
    for offset in range(0, state.width * types.size(dtype), CPU_CACHE_LINE):
        address = state.writer.pure(f"llvm.getelementptr {first}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8")
        hints = "cache = 1 : i32, hint = 3 : i32, rw = 0 : i32"
        state.writer.effect(f'"llvm.intr.prefetch"({address}) <{{{hints}}}> : (!llvm.ptr) -> ()')


def extract(state: State, instr: Instr, indices: list[Value]) -> Value:
    """A data-dependent read (``tensor.extract``): the address is the sum of index*stride."""
    arg = state.kernel.args[instr.arg]
    whole = Expr.const(0)  # the lanes' stride, where all indices are affine
    base = state.constant(0, "i64")
    varying: list[str] = []
    for index, stride in zip(indices, arg.strides, strict=True):
        step = scalar(state, stride)
        if index.affine:
            base = _add(state, base, _multiply(state, index.name, step))
            whole = whole + stride * index.stride
        else:
            lanes = state.vector("i64")
            varying.append(
                index.name
                if stride.as_int() == 1
                else state.writer.pure(f"arith.muli {index.name}, {state.broadcast(step, 'i64')} : {lanes}")
            )
    some = nonempty(state, instr.arg)
    first = state.element(state.pointers[instr.arg], base, arg.dtype)
    if not varying and whole.as_int() == 0:
        return Value(_load_scalar(state, first, arg.dtype, some), arg.dtype)
    mask = _all(state, [state.broadcast(some, "i1")] if some else [])
    if not varying and whole.as_int() == 1:
        found = _load_vector(state, first, arg.dtype, mask, only_active=mask == state.mask)
        return Value(found, arg.dtype, uniform=False)
    if whole.as_int() != 0:
        varying.append(state.along(state.constant(0, "i64"), scalar(state, whole), "i64"))
    offsets = varying[0]
    for more in varying[1:]:
        offsets = state.writer.pure(f"arith.addi {offsets}, {more} : {state.vector('i64')}")

    def gathered() -> str:
        return _gather(state, _elements(state, first, offsets, arg.dtype), arg.dtype, mask, far=len(arg.strides) == 1)

    if not is_of_points(state.kernel, instr, state.lane):
        return Value(gathered(), arg.dtype, uniform=False)

    def loaded(start: str, lanes: str | None) -> str:
        address = state.element(first, start, arg.dtype)
        return _load_vector(state, address, arg.dtype, lanes, only_active=lanes is not None and lanes == state.mask)

    access = Access(arg.dtype, lambda start: loaded(start, mask), loaded, gathered, some)
    return Value(neighbours(state, offsets, access), arg.dtype, uniform=False)


def store(state: State, instr: Instr, value: Value) -> None:
    """Stores the active lanes of the value at the address."""
    assert instr.address is not None
    dtype = state.kernel.args[instr.arg].dtype
    pointer = state.pointers[instr.arg]
    kind, align = types.memory(dtype), types.size(dtype)
    if state.lane is None:
        name = state.in_memory(value.name, dtype, uniform=True)
        address = state.element(pointer, scalar(state, instr.address), dtype)
        state.writer.effect(f"llvm.store {name}, {address} {{alignment = {align} : i64}} : {kind}, !llvm.ptr")
        return
    vector, bools = state.vector(kind), state.vector("i1")
    name = state.in_memory(state.lanes(value), dtype, uniform=False)
    stride = state.stride(instr.address)
    if stride is not None and stride.as_int() == 1:
        address = _contiguous_address(state, pointer, instr.address, dtype)
        store_vector(state, name, address, vector, align)
        return
    if instr in state.groups and state.mask is None:
        _spread(state, instr, state.groups[instr], name)
        return
    addresses = _elements(state, pointer, per_lane(state, instr.address), dtype)
    state.writer.effect(
        f"llvm.intr.masked.scatter {name}, {addresses}, {state.active()} {{alignment = {align} : i32}}"
        f" : {vector}, {bools} into vector<{state.width}x!llvm.ptr>"
    )


def _picked(state: State, instr: Instr, member: Member) -> str:
    """The value of one load of a group, shuffled from the vectors that the whole group reads."""
    assert instr.address is not None
    dtype, pure = state.kernel.args[instr.arg].dtype, state.writer.pure
    kind, align = types.memory(dtype), types.size(dtype)
    vector, first = state.vector(kind), scalar(state, instr.address - member.index)
    base = state.element(state.pointers[instr.arg], first, dtype)
    parts = []
    for k in range(member.stride):
        address = state.element(base, state.constant(k * state.width, "i64"), dtype)
        text = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}"
        parts.append(pure(text, at_least=state.writer.depth))
    orders = picked(member.stride, member.index, state.width)
    return state.in_register(_shuffled(state, parts, orders, vector), dtype, uniform=False)


def _every(state: State, instr: Instr, stride: int) -> str:
    """Every ``stride``-th element from whole vectors; of the last one, nothing behind the last element."""
    assert instr.address is not None
    dtype, width = state.kernel.args[instr.arg].dtype, state.width
    kind, align = types.memory(dtype), types.size(dtype)
    vector = state.vector(kind)
    base = state.element(state.pointers[instr.arg], scalar(state, instr.address), dtype)
    parts = []
    for k in range(stride):
        address = state.element(base, state.constant(k * width, "i64"), dtype)
        text = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}"
        if k == stride - 1:
            wanted = ", ".join("true" if lane <= width - stride else "false" for lane in range(width))
            mask = state.writer.pure(f"arith.constant dense<[{wanted}]> : {state.vector('i1')}")
            text = _masked_load(state, address, mask, dtype)
        parts.append(state.writer.pure(text, at_least=state.writer.depth))
    return state.in_register(_shuffled(state, parts, picked(stride, 0, width), vector), dtype, uniform=False)


def _masked_load(state: State, address: str, mask: str, dtype: str) -> str:
    vector, zero = state.vector(types.memory(dtype)), state.splat(0, types.memory(dtype))
    where = f"{{alignment = {types.size(dtype)} : i32}} : (!llvm.ptr, {state.vector('i1')}, {vector}) -> {vector}"
    return f"llvm.intr.masked.load {address}, {mask}, {zero} {where}"


def _spread(state: State, instr: Instr, member: Member, name: str) -> None:
    """Stores the values of a group, when its last value is computed, as shuffled whole vectors."""
    assert instr.address is not None
    dtype = state.kernel.args[instr.arg].dtype
    kind, align = types.memory(dtype), types.size(dtype)
    vector = state.vector(kind)
    values = state.waiting.setdefault(member.group, {})
    values[member.index] = name
    if len(values) < member.stride:
        return
    parts = [values[k] for k in range(member.stride)]
    del state.waiting[member.group]
    base = state.element(state.pointers[instr.arg], scalar(state, instr.address - member.index), dtype)
    for k in range(member.stride):
        address = state.element(base, state.constant(k * state.width, "i64"), dtype)
        whole = _shuffled(state, parts, spread(member.stride, k, state.width), vector)
        state.writer.effect(f"llvm.store {whole}, {address} {{alignment = {align} : i64}} : {vector}, !llvm.ptr")


def _shuffled(state: State, parts: list[str], orders: list[list[int]], vector: str) -> str:
    """The first part shuffled with each of the others in turn."""
    found = parts[0]
    for part, order in zip(parts[1:], orders, strict=True):
        lanes = ", ".join(map(str, order))
        found = state.writer.pure(f"vector.shuffle {found}, {part} [{lanes}] : {vector}, {vector}")
    return found


def check_index(state: State, instr: Instr, index: Value) -> Value:
    """The index clamped to [0, size); an index out of range in an active lane is reported in the error slot."""
    assert instr.address is not None
    size = scalar(state, instr.address)
    name = index.name if index.uniform else state.lanes(index)
    type_ = "i64" if index.uniform else state.vector("i64")
    wide = size if index.uniform else state.broadcast(size, "i64")
    pure = state.writer.pure
    outside = pure(f"arith.cmpi uge, {name}, {wide} : {type_}")
    report(state, outside, uniform=index.uniform, code=int(instr.value or 1))
    zero = state.constant(0, "i64") if index.uniform else state.splat(0, "i64")
    one = state.constant(1, "i64") if index.uniform else state.splat(1, "i64")
    low = pure(f"arith.minsi {name}, {pure(f'arith.subi {wide}, {one} : {type_}')} : {type_}")
    return Value(pure(f"arith.maxsi {low}, {zero} : {type_}"), instr.dtype, uniform=index.uniform)


def report(state: State, condition: str, *, uniform: bool, code: int) -> None:
    """Writes the code to the error slot if the condition holds (in an active lane). No effect without an error slot."""
    if not state.error:
        return
    if not uniform:
        bools = state.vector("i1")
        if state.mask is not None:
            condition = state.writer.pure(f"arith.andi {condition}, {state.mask} : {bools}")
        condition = state.writer.pure(f"vector.reduction <or>, {condition} : {bools} into i1")
    value = state.constant(code, "i64")

    def write() -> list[str]:
        state.writer.effect(f"llvm.store {value}, {state.error} : i64, !llvm.ptr")
        return []

    state.writer.branch(condition, [], write)


def holds(state: State, instr: Instr) -> Value:
    """Whether the expression of the mask is at least 0."""
    scalars, vectors = _conditions(state, instr.mask)
    if vectors:
        return Value(vectors[0], "i1", uniform=False)
    return Value(scalars or state.constant(True, "i1"), "i1")


def _conditions(state: State, mask: tuple[Expr, ...]) -> tuple[str, list[str]]:
    """The conditions ``expr >= 0``: the uniform ones as one i1 ("" for none), the others as vectors."""
    uniform, vectors, pure = "", [], state.writer.pure
    for expr in mask:
        constant = expr.as_int()
        if constant is not None and constant >= 0:
            continue
        stride = state.stride(expr)
        step = None if stride is None else stride.as_int()
        if step == 0:
            zero = state.constant(0, "i64")
            one = pure(f"arith.cmpi sge, {scalar(state, expr)}, {zero} : i64")
            uniform = pure(f"arith.andi {uniform}, {one} : i1") if uniform else one
        elif step is not None and abs(step) < _FAR >> 8:
            vectors.append(_near(state, scalar(state, expr), step))
        else:
            lanes, zero = per_lane(state, expr), state.splat(0, "i64")
            vectors.append(pure(f"arith.cmpi sge, {lanes}, {zero} : {state.vector('i64')}"))
    return uniform, vectors


def _near(state: State, base: str, step: int) -> str:
    """base + lane*step >= 0, compared as i32: half the work of i64. The base is clamped so that nothing overflows."""
    pure, lanes = state.writer.pure, state.vector("i32")
    low = pure(f"arith.maxsi {base}, {state.constant(-_FAR, 'i64')} : i64")
    near = pure(f"arith.minsi {low}, {state.constant(_FAR, 'i64')} : i64")
    narrow = pure(f"arith.trunci {near} : i64 to i32")
    moved = state.along(narrow, state.constant(step, "i32"), "i32")
    return pure(f"arith.cmpi sge, {moved}, {state.splat(0, 'i32')} : {lanes}")


def _all(state: State, masks: list[str]) -> str | None:
    """The conjunction of the masks and the active lanes; None if nothing restricts."""
    parts = masks + ([state.mask] if state.mask is not None else [])
    if not parts:
        return None
    result = parts[0]
    for part in parts[1:]:
        result = state.writer.pure(f"arith.andi {result}, {part} : {state.vector('i1')}")
    return result


def nonempty(state: State, arg: int) -> str:
    """Whether the argument has elements (an i1), "" if it always has: a clamped index into an empty one must not be
    read."""
    sizes = [size for size in state.kernel.args[arg].sizes if (size.as_int() or 0) <= 0]
    if not sizes:
        return ""
    return state.writer.pure(f"arith.cmpi sgt, {scalar(state, product(sizes))}, {state.constant(0, 'i64')} : i64")


def _add(state: State, left: str, right: str) -> str:
    return state.writer.pure(f"arith.addi {left}, {right} : i64")


def _multiply(state: State, left: str, right: str) -> str:
    return state.writer.pure(f"arith.muli {left}, {right} : i64")


def _select(state: State, condition: str, pointer: str, otherwise: str) -> str:
    return state.writer.pure(f"llvm.select {condition}, {pointer}, {otherwise} : i1, !llvm.ptr")


def _elements(state: State, pointer: str, offsets: str, dtype: str) -> str:
    lanes, kind = state.vector("i64"), types.memory(dtype)
    pointers = f"vector<{state.width}x!llvm.ptr>"
    return state.writer.pure(f"llvm.getelementptr {pointer}[{offsets}] : (!llvm.ptr, {lanes}) -> {pointers}, {kind}")


def _contiguous_address(state: State, pointer: str, address: Expr, dtype: str) -> str:
    """The address of lane 0, as (rest) + lane dim, so that the rest is hoisted out of the vector loop."""
    assert state.lane is not None
    if state.packed is not None:
        return state.element(pointer, scalar(state, address), dtype)
    rest = state.element(pointer, scalar(state, address - Expr.symbol(state.lane)), dtype)
    return state.element(rest, state.symbols[state.lane], dtype)


def _of_packed(state: State, instr: Instr, conditions: list[str]) -> Value:
    """A load of packed rows whose elements are not contiguous."""
    assert instr.address is not None
    address, dtype, pointer = instr.address, state.kernel.args[instr.arg].dtype, state.pointers[instr.arg]

    def gather() -> str:
        addresses = _elements(state, pointer, per_lane(state, address), dtype)
        return _gather(state, addresses, dtype, _all(state, conditions), far=False)

    strides = state.lane_strides(address)
    if strides is None:
        return Value(gather(), dtype, uniform=False)
    first = state.element(pointer, scalar(state, address), dtype)

    def read(offset: str, mask: str) -> str:
        text = _masked_load(state, state.element(first, offset, dtype), mask, dtype)
        return state.writer.pure(text, at_least=state.writer.depth)

    found = packed_rows.permuted(state, strides, dtype, conditions, read, gather)
    return Value(found, dtype, uniform=False)


def _any(state: State, mask: str | None) -> str:
    return state.writer.pure(f"vector.reduction <or>, {mask} : {state.vector('i1')} into i1")


def _somewhere(state: State, some: str, address: str) -> str:
    """The address if some lane is read (``some``), else a valid one: a masked access to unmapped memory takes a
    microcode assist of about a hundred cycles, for each vector."""
    return _select(state, some, address, state.safe) if some else address


def _contiguous(state: State, pointer: str, address: Expr, dtype: str, mask: str | None, some: str) -> str:
    first = _somewhere(state, some, _contiguous_address(state, pointer, address, dtype))
    return _load_vector(state, first, dtype, mask, only_active=mask == state.mask)


def _backward(state: State, pointer: str, address: Expr, dtype: str, mask: str | None, some: str) -> str:
    """Loads lanes at descending addresses: a vector that ends with lane 0, reversed."""
    assert state.lane is not None
    lane, pure, last = Expr.symbol(state.lane), state.writer.pure, state.width - 1
    rest = state.element(pointer, scalar(state, address + lane - last), dtype)
    back = pure(f"arith.subi {state.constant(0, 'i64')}, {state.symbols[state.lane]} : i64")
    kind, bools = types.register(dtype), state.vector("i1")
    turned = None if mask is None else _turned(state, mask, bools)
    first = _somewhere(state, some, state.element(rest, back, dtype))
    found = _load_vector(state, first, dtype, turned, only_active=mask == state.mask)
    return _turned(state, found, state.vector(kind))


def _turned(state: State, name: str, vector: str) -> str:
    lanes = ", ".join(map(str, reversed(range(state.width))))
    return state.writer.pure(f"vector.shuffle {name}, {name} [{lanes}] : {vector}, {vector}")


def _load_vector(state: State, address: str, dtype: str, mask: str | None, *, only_active: bool) -> str:
    """Loads a vector. ``only_active``: the mask is exactly the mask of active lanes."""
    kind, align = types.memory(dtype), types.size(dtype)
    vector = state.vector(kind)
    plain = f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {vector}"
    text = plain
    if mask is not None:
        text = _masked_load(state, address, mask, dtype)
    if mask is not None and only_active and not state.target.fast_masks:
        writer = state.writer
        (name,) = writer.branch(state.whole, [vector], lambda: [writer.emit(plain)], lambda: [writer.emit(text)])
        return state.in_register(name, dtype, uniform=False)
    return state.in_register(state.writer.pure(text, at_least=state.writer.depth), dtype, uniform=False)


def store_vector(state: State, name: str, address: str, vector: str, align: int) -> None:
    if state.single:
        kind = vector.removesuffix(">").rpartition("x")[2]
        first = state.writer.pure(f"vector.extract {name}[0] : {kind} from {vector}", at_least=state.writer.depth)
        state.writer.effect(f"llvm.store {first}, {address} {{alignment = {align} : i64}} : {kind}, !llvm.ptr")
        return
    plain = f"llvm.store {name}, {address} {{alignment = {align} : i64}} : {vector}, !llvm.ptr"
    if state.mask is None:
        state.writer.effect(plain)
        return
    masked = (
        f"llvm.intr.masked.store {name}, {address}, {state.mask} {{alignment = {align} : i32}}"
        f" : {vector}, {state.vector('i1')} into !llvm.ptr"
    )
    if state.target.fast_masks:
        state.writer.effect(masked)
        return

    def write(text: str) -> list[str]:
        state.writer.effect(text)
        return []

    state.writer.branch(state.whole, [], lambda: write(plain), lambda: write(masked))


def _gather(state: State, addresses: str, dtype: str, mask: str | None, *, far: bool) -> str:
    """The elements at the addresses, 0 where the mask is false. ``far``: most are in no cache, where one instruction
    for all waits less than a load for each."""
    kind, align, pure = types.memory(dtype), types.size(dtype), state.writer.pure
    vector, bools, pointers = state.vector(kind), state.vector("i1"), f"vector<{state.width}x!llvm.ptr>"
    # Without a gather instruction a mask would be a branch for each lane: lanes that may not read have an address
    # that they may read, and zero after that.
    each = kind in types.GATHERED and not (far or state.target.gathers)
    by_lane = mask is not None and (each or kind not in types.GATHERED)
    active = state.splat(True, "i1") if mask is None or by_lane else mask
    if by_lane:
        safe = pure(f"vector.broadcast {state.safe} : !llvm.ptr to {pointers}")
        addresses = pure(f"llvm.select {mask}, {addresses}, {safe} : {bools}, {pointers}")
    zero = state.splat(0, kind)
    text = f"llvm.intr.masked.gather {addresses}, {active}, {zero} {{alignment = {align} : i32}}"
    if each:
        found = _one_by_one(state, addresses, kind)
    else:
        found = pure(f"{text} : ({pointers}, {bools}, {vector}) -> {vector}", at_least=state.writer.depth)
    if by_lane:
        found = pure(f"arith.select {mask}, {found}, {zero} : {bools}, {vector}", at_least=state.writer.depth)
    return state.in_register(found, dtype, uniform=False)


def _one_by_one(state: State, addresses: str, kind: str) -> str:
    """The elements at the addresses, with a load for each."""
    pure, depth, pointers = state.writer.pure, state.writer.depth, f"vector<{state.width}x!llvm.ptr>"
    vector, where = state.vector(kind), f"{{alignment = {types.size(kind)} : i64}} : !llvm.ptr -> {kind}"
    found = state.splat(0, kind)
    for lane in range(state.width):
        address = pure(f"llvm.extractelement {addresses}[{state.constant(lane, 'i64')} : i64] : {pointers}")
        element = pure(f"llvm.load {address} {where}", at_least=depth)
        found = pure(f"vector.insert {element}, {found}[{lane}] : {kind} into {vector}", at_least=depth)
    return found


def _load_scalar(state: State, address: str, dtype: str, condition: str) -> str:
    """A scalar load outside the vector loop; 0 if the condition (unless "") does not hold: then memory that is always
    there is read, not behind a branch, so that equal loads are one."""
    writer, kind = state.writer, types.memory(dtype)
    depth = min(writer.depth, max(state.uniform_depth, writer.depth_of(address, *([condition] if condition else []))))
    where = _somewhere(state, condition, address)
    text = f"llvm.load {where} {{alignment = {types.size(dtype)} : i64}} : !llvm.ptr -> {kind}"
    name = writer.pure(text, at_least=depth)
    if condition:
        name = writer.pure(f"arith.select {condition}, {name}, {state.constant(0, kind)} : {kind}", at_least=depth)
    return state.in_register(name, dtype, uniform=True)
