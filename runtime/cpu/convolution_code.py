"""Machine code of convolutions: one module for all sizes, which are arguments.

A tile is some output pixels times some vectors of output channels. Its sums stay in registers over the filter and the
input channels: weights are vectors, and each input is one number that all lanes get. Pixels are numbered through rows
and images. A tile reads its inputs where they are, if a pixel of the output is one of the input; else the inputs of
each of its pixels are copied into a row of a buffer first, zeros where the filter is outside of the image. What a copy
costs is shared by all output channels. The order of each sum is that of the filter, whatever tile it is in.

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), and Dukhan, "The Indirect
Convolution Algorithm" (2019, arXiv:1907.02129).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Final

import llvmlite.binding as llvm

from symshape.machine import instruction_sets
from symshape.machine.process_symbols import initialize
from symshape.runtime.cpu.llvm_text import Function


@dataclass(frozen=True)
class Shape:
    """Of the largest tile: ``pixels`` times ``vectors`` of ``lanes`` channels; ``fast_masks`` as in
    `codegen/cpu/objects/target.py`."""

    lanes: int
    pixels: int
    fast_masks: bool
    vectors: int = 2

    @property
    def width(self) -> int:
        return self.lanes * self.vectors


@cache
def shape_of(level: str) -> Shape:
    """Of the code for a level of instructions: sums, weights and an input fit in the vector registers."""
    native = level == instruction_sets.NATIVE
    has = instruction_sets.host_features() if native else set(instruction_sets.features(level))
    if has >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}:
        return Shape(16, 14, True)
    return Shape(8 if has >= {"avx2", "fma"} else 4, 6, False)


# The arguments of an entry, in int64; sizes are in elements. The first five are addresses, of which `bias` and `other`
# may be 0.
WORDS: Final = (
    *("x", "packed", "bias", "other", "out"),
    *("units", "parts", "clamp"),  # parts: threads that the work is worth; clamp: two float32
    *("height", "width", "channels", "out_height", "out_width", "out_channels"),
    *("kernel_height", "kernel_width", "stride_height", "stride_width"),
    *("padding_height", "padding_width", "dilation_height", "dilation_width"),
    # Of dense convolutions: what a group has; whether inputs are read where they are; the elements of a copied row;
    # tiles, and how many of them are computed together; their pixels, and how many tiles have one more.
    *("group_inputs", "group_outputs", "direct", "row", "tiles", "together", "tile_pixels", "larger_tiles"),
    # A sum's length, and the part of it that is computed at a time; the filter's taps that are one piece of memory, and
    # pieces in a row of the filter.
    *("length", "chunk", "piece_taps", "row_pieces"),
    # Of depthwise ones: the first output column whose filter is within the image, and the one after the last.
    *("inner_first", "inner_end"),
)
_FIRST, _LAST = 1, 2  # of the chunks of a sum
_LINE: Final = 16  # elements of a cache line
_AHEAD: Final = 1024  # elements: weights of the next block too, which follow, come from L3 or memory

_HEAD = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_max_threads()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_thread_num()
declare i32 @omp_in_parallel()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <L x float> @llvm.fmuladd.vLf32(<L x float>, <L x float>, <L x float>)
declare <L x float> @llvm.masked.load.vLf32.p0(ptr, i32, <L x i1>, <L x float>)
declare void @llvm.masked.store.vLf32.p0(<L x float>, ptr, i32, <L x i1>)
"""

# Context words: arguments, body, units, threads.
_LAUNCH = """
define internal void @region(ptr %context) noinline {
  %words = load ptr, ptr %context
  %body_at = getelementptr i64, ptr %context, i64 1
  %body = load ptr, ptr %body_at
  %units = call i64 @word(ptr %context, i64 2)
  %wanted = call i64 @word(ptr %context, i64 3)
  %team32 = call i32 @omp_get_num_threads()
  %team = zext i32 %team32 to i64
  %threads = call i64 @llvm.smin.i64(i64 %team, i64 %wanted)
  %id32 = call i32 @omp_get_thread_num()
  %id = zext i32 %id32 to i64
  %works = icmp slt i64 %id, %threads
  br i1 %works, label %work, label %done
work:
  %least = udiv i64 %units, %threads
  %more = urem i64 %units, %threads
  %extra = call i64 @llvm.smin.i64(i64 %id, i64 %more)
  %all = mul i64 %id, %least
  %begin = add i64 %all, %extra
  %gets = icmp slt i64 %id, %more
  %plus = zext i1 %gets to i64
  %length = add i64 %least, %plus
  %end = add i64 %begin, %length
  call void %body(ptr %words, i64 %begin, i64 %end)
  br label %done
done:
  ret void
}

define internal i64 @word(ptr %words, i64 %index) alwaysinline {
  %at = getelementptr i64, ptr %words, i64 %index
  %value = load i64, ptr %at, align 1
  ret i64 %value
}

define internal void @launch(ptr %words, ptr %body) noinline {
  %context = alloca i64, i64 4
  %units = call i64 @word(ptr %words, i64 UNITS)
  %parts = call i64 @word(ptr %words, i64 PARTS)
  %share = call i64 @llvm.smin.i64(i64 %units, i64 %parts)
  %large = icmp sgt i64 %share, 1
  br i1 %large, label %ask, label %single
ask:
  %inside = call i32 @omp_in_parallel()
  %free = icmp eq i32 %inside, 0
  %max32 = call i32 @omp_get_max_threads()
  %max = zext i32 %max32 to i64
  %several = icmp sgt i64 %max, 1
  %parallel = and i1 %free, %several
  br i1 %parallel, label %team, label %single
team:
  store ptr %words, ptr %context
  %body_at = getelementptr i64, ptr %context, i64 1
  store ptr %body, ptr %body_at
  %units_at = getelementptr i64, ptr %context, i64 2
  store i64 %units, ptr %units_at
  %threads_at = getelementptr i64, ptr %context, i64 3
  store i64 %share, ptr %threads_at
  call void @GOMP_parallel(ptr @region, ptr %context, i32 0, i32 0)
  ret void
single:
  call void %body(ptr %words, i64 0, i64 %units)
  ret void
}

define void @dense(ptr %words) {
  call void @launch(ptr %words, ptr @dense_units)
  ret void
}

define void @depthwise(ptr %words) {
  call void @launch(ptr %words, ptr @depthwise_units)
  ret void
}
"""


def text_of(shape: Shape) -> str:
    """The module: ``dense`` and ``depthwise``, which take ``WORDS``."""
    launch = _LAUNCH.replace("UNITS", str(WORDS.index("units"))).replace("PARTS", str(WORDS.index("parts")))
    sizes = [(pixels, vectors) for vectors in range(1, shape.vectors + 1) for pixels in range(1, shape.pixels + 1)]
    names = ", ".join(f"ptr @tile_{pixels}_{vectors}" for pixels, vectors in sizes)
    parts = [
        _HEAD.replace("vL", f"v{shape.lanes}").replace("<L", f"<{shape.lanes}"),
        launch,
        f"@tiles = internal constant [{len(sizes)} x ptr] [{names}]",
        *(_tile(shape, pixels, vectors) for pixels, vectors in sizes),
        _copies(shape),
        _dense_units(shape),
        *(_depthwise_pixels(shape, pixels, vectors) for pixels, vectors in _DEPTHWISE),
        _depthwise_units(),
    ]
    return "\n".join(parts)


@cache
def object_of(level: str) -> bytes:
    """The object file for a level. OptionError for one that this processor has not."""
    name, features = instruction_sets.processor(level)
    initialize()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=name, features=features, opt=2, jit=True)
    module = llvm.parse_assembly(text_of(shape_of(level)))
    module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
    # The text is as it is to run, but for its variables: all of LLVM's passes would take three times as long.
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    made: bytes = machine.emit_object(module)
    return made


class _Vectors:
    """Vectors of float32 in a function."""

    def __init__(self, function: Function, shape: Shape) -> None:
        self.function, self.lanes = function, shape.lanes
        self.type = f"<{shape.lanes} x float>"

    def load(self, address: str, mask: str | None = None) -> str:
        if mask is None:
            return self.function.value(f"load {self.type}, ptr {address}, align 4")
        call = f"call {self.type} @llvm.masked.load.v{self.lanes}f32.p0"
        masked = f"<{self.lanes} x i1> {mask}"
        return self.function.value(f"{call}(ptr {address}, i32 4, {masked}, {self.type} zeroinitializer)")

    def store(self, value: str, address: str, mask: str | None = None) -> None:
        if mask is None:
            self.function.effect(f"store {self.type} {value}, ptr {address}, align 4")
            return
        call = f"call void @llvm.masked.store.v{self.lanes}f32.p0"
        self.function.effect(f"{call}({self.type} {value}, ptr {address}, i32 4, <{self.lanes} x i1> {mask})")

    def splat(self, value: str, type_: str = "float") -> str:
        vector = f"<{self.lanes} x {type_}>"
        one = self.function.value(f"insertelement {vector} poison, {type_} {value}, i32 0")
        lanes = f"<{self.lanes} x i32> zeroinitializer"
        return self.function.value(f"shufflevector {vector} {one}, {vector} poison, {lanes}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """Rounded once where the processor can."""
        arguments = ", ".join(f"{self.type} {one}" for one in (a, b, c))
        return self.function.value(f"call {self.type} @llvm.fmuladd.v{self.lanes}f32({arguments})")

    def add(self, a: str, b: str) -> str:
        return self.function.value(f"fadd {self.type} {a}, {b}")

    def clamp(self, value: str, low: str, high: str) -> str:
        """NaN stays."""
        for how, bound in (("olt", low), ("ogt", high)):
            outside = self.function.value(f"fcmp {how} {self.type} {value}, {bound}")
            mask = f"<{self.lanes} x i1> {outside}"
            value = self.function.value(f"select {mask}, {self.type} {bound}, {self.type} {value}")
        return value

    def below(self, end: str, first: int = 0) -> str:
        """A mask: lanes whose number, counted from ``first``, is less than ``end``, which fits in 32 bits."""
        return self._lanes("slt", end, first)

    def from_(self, start: str) -> str:
        """A mask: lanes from this one on."""
        return self._lanes("sge", start, 0)

    def _lanes(self, how: str, bound: str, first: int) -> str:
        numbers = ", ".join(f"i32 {first + lane}" for lane in range(self.lanes))
        narrow = self.function.value(f"trunc i64 {bound} to i32")
        return self.function.value(f"icmp {how} <{self.lanes} x i32> <{numbers}>, {self.splat(narrow, 'i32')}")


def _bounds(function: Function, vectors: _Vectors, clamp: str) -> tuple[str, str]:
    """The two float32 of a word, each in all lanes."""
    found = []
    for shift in (0, 32):
        bits = function.value(f"trunc i64 {function.value(f'lshr i64 {clamp}, {shift}')} to i32")
        found.append(vectors.splat(function.value(f"bitcast i32 {bits} to float")))
    return found[0], found[1]


# --- tiles ---

_TILE: Final = {
    **{"a": "ptr", "step": "i64"},  # inputs: of the first pixel, and elements from one pixel to the next
    **{"b": "ptr", "length": "i64"},  # weights
    **{"out": "ptr", "out_step": "i64", "bias": "ptr", "other": "ptr"},
    **{"channels": "i64", "chunks": "i64", "clamp": "i64"},  # channels that there are; which chunks this is
}


def _tile(shape: Shape, pixels: int, count: int) -> str:
    """Sums of ``pixels`` pixels and ``count`` vectors."""
    f = Function(f"tile_{pixels}_{count}", _TILE)
    vectors = _Vectors(f, shape)
    masks = [vectors.below("%channels", lane) for lane in range(0, count * shape.lanes, shape.lanes)]
    sums = [[f.variable(vectors.type, "zeroinitializer") for _ in range(count)] for _ in range(pixels)]
    full = f.compare("sge", "%channels", str(count * shape.lanes))
    is_first = f.value("trunc i64 %chunks to i1")
    offsets = [f.mul("%out_step", str(row)) for row in range(pixels)]

    def rows(address: str) -> list[list[str]]:
        starts = [f.floats(address, offset) for offset in offsets]
        return [[f.floats(start, v * shape.lanes) for v in range(count)] for start in starts]

    for some, condition in _phases(f, shape, full, masks):
        with condition:
            with f.when(is_first), f.when(f.is_there("%bias")):
                for v in range(count):
                    value = vectors.load(f.floats("%bias", v * shape.lanes), some[v])
                    for row in sums:
                        f.set(row[v], vectors.type, value)
            with f.when(is_first, False):
                for row, addresses in zip(sums, rows("%out")):
                    for v in range(count):
                        f.set(row[v], vectors.type, vectors.load(addresses[v], some[v]))
    _sum(f, vectors, sums)
    is_last = f.compare("sge", "%chunks", str(_LAST))
    low, high = _bounds(f, vectors, "%clamp")
    for some, condition in _phases(f, shape, full, masks):
        with condition:
            with f.when(is_last):
                with f.when(f.is_there("%other")):
                    for row, addresses in zip(sums, rows("%other")):
                        for v in range(count):
                            value = vectors.add(f.get(row[v], vectors.type), vectors.load(addresses[v], some[v]))
                            f.set(row[v], vectors.type, value)
                for row in sums:
                    for one in row:
                        f.set(one, vectors.type, vectors.clamp(f.get(one, vectors.type), low, high))
            for row, addresses in zip(sums, rows("%out")):
                for v in range(count):
                    vectors.store(f.get(row[v], vectors.type), addresses[v], some[v])
    return f.text()


def _phases(
    f: Function, shape: Shape, full: str, masks: list[str]
) -> Iterator[tuple[Sequence[str | None], AbstractContextManager[None]]]:
    """The masks to use, and when: where masks cost, all vectors are full or some are not."""
    if shape.fast_masks:
        yield masks, nullcontext()
        return
    yield [None] * len(masks), f.when(full)
    yield masks, f.when(full, False)


def _sum(f: Function, vectors: _Vectors, sums: list[list[str]]) -> None:
    """Adds the products. The address of an input is that of the row before and a step: no register for each row."""
    count = len(sums[0])
    a, b = f.variable("ptr", "%a"), f.variable("ptr", "%b")
    with f.loop("0", "%length"):
        address, weight = f.get(a, "ptr"), f.get(b, "ptr")
        weights = [vectors.load(f.floats(weight, v * vectors.lanes)) for v in range(count)]
        for line in range(0, count * vectors.lanes, _LINE):
            f.effect(f"call void @llvm.prefetch.p0(ptr {f.floats(weight, _AHEAD + line)}, i32 0, i32 3, i32 1)")
        f.set(a, "ptr", f.floats(address, 1))
        f.set(b, "ptr", f.floats(weight, count * vectors.lanes))
        for number, row in enumerate(sums):
            address = f.floats(address, "%step") if number else address
            x = vectors.splat(f.value(f"load float, ptr {address}, align 4"))
            for v in range(count):
                f.set(row[v], vectors.type, vectors.multiply_add(x, weights[v], f.get(row[v], vectors.type)))


class _Words:
    """The arguments of an entry, each read once."""

    def __init__(self, f: Function) -> None:
        self._read = {
            name: f.address_word("%words", index) if index < 5 else f.word("%words", index)
            for index, name in enumerate(WORDS)
        }

    def __getattr__(self, name: str) -> str:
        return self._read[name]


# --- dense convolutions ---


def _tile_pixels(f: Function, w: _Words, tile: str) -> tuple[str, str]:
    """The first pixel of a tile, and their number."""
    first = f.add(f.mul(tile, w.tile_pixels), f.min(tile, w.larger_tiles))
    one_more = f.value(f"zext i1 {f.compare('slt', tile, w.larger_tiles)} to i64")
    return first, f.add(w.tile_pixels, one_more)


def _dense_units(shape: Shape) -> str:
    """Units of work: (group, tiles that are computed together, block of output channels). A run of units of the same
    tiles copies their inputs once."""
    f = Function("dense_units", {"words": "ptr", "begin": "i64", "end": "i64"})
    w = _Words(f)
    vectors = f.div(f.add(w.group_outputs, str(shape.lanes - 1)), str(shape.lanes))
    padded = f.mul(vectors, str(shape.lanes))
    blocks = f.div(f.add(w.group_outputs, str(shape.width - 1)), str(shape.width))
    batches = f.div(f.sub(f.add(w.tiles, w.together), "1"), w.together)
    tile_size = f.mul(w.row, str(shape.pixels))
    direct = f.compare("ne", w.direct, "0")
    size = f.select(direct, "1", f.mul(tile_size, w.together))
    buffer = f.value(f"alloca float, i64 {size}, align 64")
    at = f.variable("i64", "%begin")
    with f.repeat(at, "%end"):
        unit = f.get(at, "i64")
        part = f.div(unit, blocks)
        first_block = f.sub(unit, f.mul(part, blocks))
        end_block = f.min(blocks, f.add(first_block, f.sub("%end", unit)))
        f.set(at, "i64", f.add(unit, f.sub(end_block, first_block)))
        group = f.div(part, batches)
        first = f.mul(f.sub(part, f.mul(group, batches)), w.together)
        end = f.min(w.tiles, f.add(first, w.together))
        group_weights = f.mul(f.mul(group, w.length), padded)
        with f.loop("0", w.length, w.chunk) as start:
            stop = f.min(w.length, f.add(start, w.chunk))
            with f.when(direct, False), f.loop(first, end) as tile:
                to = f.floats(buffer, f.mul(f.sub(tile, first), tile_size))
                pixel, count = _tile_pixels(f, w, tile)
                given = (f"ptr %words, ptr {to}", *(pixel, count, group, start, stop))
                f.effect(f"call void @copies({', i64 '.join(given)})")
            chunk_weights = f.add(group_weights, f.mul(start, padded))
            with f.loop(first_block, end_block) as block:
                before = f.mul(f.mul(block, f.sub(stop, start)), str(shape.width))
                here = _Block(group, block, start, stop, f.add(chunk_weights, before))
                with f.loop(first, end) as tile:
                    copied = f.floats(buffer, f.mul(f.sub(tile, first), tile_size))
                    _run_tile(f, w, shape, here, tile, vectors, direct, copied)
    return f.text()


@dataclass(frozen=True)
class _Block:
    """Of output channels, in a part of the sums; ``weights``: where they begin, in elements."""

    group: str
    block: str
    start: str
    stop: str
    weights: str


def _run_tile(
    f: Function, w: _Words, shape: Shape, at: _Block, tile: str, vectors: str, direct: str, copied: str
) -> None:
    count = f.min(str(shape.vectors), f.sub(vectors, f.mul(at.block, str(shape.vectors))))
    channel = f.mul(at.block, str(shape.width))
    there = f.sub(w.group_outputs, channel)
    channel = f.add(channel, f.mul(at.group, w.group_outputs))
    pixel, pixels = _tile_pixels(f, w, tile)
    read = f.floats(w.x, f.add(f.add(f.mul(pixel, w.channels), f.mul(at.group, w.group_inputs)), at.start))
    a = f.select(direct, read, copied, "ptr")
    step = f.select(direct, w.channels, w.row)
    weights = f.floats(w.packed, at.weights)
    result = f.add(f.mul(pixel, w.out_channels), channel)
    bias = f.select(f.is_there(w.bias), f.floats(w.bias, channel), "null", "ptr")
    other = f.select(f.is_there(w.other), f.floats(w.other, result), "null", "ptr")
    first = f.select(f.compare("eq", at.start, "0"), str(_FIRST), "0")
    chunks = f.add(first, f.select(f.compare("eq", at.stop, w.length), str(_LAST), "0"))
    index = f.add(f.mul(f.sub(count, "1"), str(shape.pixels)), f.sub(pixels, "1"))
    code = f.value(f"load ptr, ptr {f.value(f'getelementptr ptr, ptr @tiles, i64 {index}')}")
    values = (a, step, weights, f.sub(at.stop, at.start), f.floats(w.out, result), w.out_channels)
    given = (*values, bias, other, there, chunks, w.clamp)
    f.effect(f"call void {code}({', '.join(f'{t} {v}' for t, v in zip(_TILE.values(), given, strict=True))})")


def _copies(shape: Shape) -> str:
    """The inputs ``start`` to ``stop`` of the sums of some pixels, a row for each."""
    names = ("pixel", "count", "group", "start", "stop")
    f = Function("copies", {"words": "ptr", "to": "ptr", **dict.fromkeys(names, "i64")})
    w = _Words(f)
    size = f.mul(w.piece_taps, w.group_inputs)
    first_piece = f.div("%start", size)
    first_row = f.div(first_piece, w.row_pieces)
    first_column = f.sub(first_piece, f.mul(first_row, w.row_pieces))
    skipped = f.sub("%start", f.mul(first_piece, size))
    row_of_all = f.div("%pixel", w.out_width)
    ox = f.variable("i64", f.sub("%pixel", f.mul(row_of_all, w.out_width)))
    image = f.variable("i64", f.div(row_of_all, w.out_height))
    oy = f.variable("i64", f.sub(row_of_all, f.mul(f.get(image, "i64"), w.out_height)))
    inner_height, inner_width = (
        f.sub(size, f.mul(f.sub(taps, "1"), dilation))
        for size, taps, dilation in (
            (w.height, w.kernel_height, w.dilation_height),
            (w.width, w.kernel_width, w.dilation_width),
        )
    )
    first_input = f.mul("%group", w.group_inputs)
    with f.loop("0", "%count") as number:
        to = f.floats("%to", f.sub(f.mul(number, w.row), "%start"))
        y = f.sub(f.mul(f.get(oy, "i64"), w.stride_height), w.padding_height)
        x = f.sub(f.mul(f.get(ox, "i64"), w.stride_width), w.padding_width)
        line = f.mul(f.add(f.mul(f.get(image, "i64"), w.height), y), w.width)
        source = f.floats(w.x, f.add(f.mul(f.add(line, x), w.channels), first_input))
        is_inner = f.both(
            f.both(f.compare("sge", y, "0"), f.compare("slt", y, inner_height)),
            f.both(f.compare("sge", x, "0"), f.compare("slt", x, inner_width)),
        )
        for inner in True, False:
            with f.when(is_inner, inner):
                piece = tuple(f.variable("i64", v) for v in (first_row, first_column, skipped))
                _copy_pieces(f, w, _Vectors(f, shape), piece, size, source, to, None if inner else (y, x))
        _count_up(f, ox, w.out_width, oy, w.out_height, image)
    return f.text()


def _copy_pieces(
    f: Function,
    w: _Words,
    vectors: _Vectors,
    piece: tuple[str, ...],
    size: str,
    source: str,
    to: str,
    pixel: tuple[str, str] | None,
) -> None:
    """The inputs of a pixel, the first ones in what ``piece`` says: a row of the filter, the piece in it, and elements
    to skip. ``source``: where the filter begins, at row and column ``pixel``; None where all of it is in the image."""
    ky, kx, skip = piece
    k = f.variable("i64", "%start")
    with f.repeat(k, "%stop"):
        down, right = (
            f.mul(f.get(tap, "i64"), dilation) for tap, dilation in ((ky, w.dilation_height), (kx, w.dilation_width))
        )
        done, here = f.get(skip, "i64"), f.get(k, "i64")
        end = f.min(size, f.add(done, f.sub("%stop", here)))
        valid = None
        if pixel:
            iy, ix = f.add(pixel[0], down), f.add(pixel[1], right)
            inside = f.both(f.compare("sge", iy, "0"), f.compare("slt", iy, w.height))
            low = f.mul(f.max(f.sub("0", ix), "0"), w.group_inputs)
            high = f.mul(f.min(w.piece_taps, f.sub(w.width, ix)), w.group_inputs)
            valid = low, f.select(inside, high, "0")
        begin = f.floats(source, f.mul(f.add(f.mul(down, w.width), right), w.channels))
        _copy(f, vectors, begin, f.floats(to, f.sub(here, done)), (done, end), valid)
        f.set(k, "i64", f.add(here, f.sub(end, done)))
        f.set(skip, "i64", "0")
        _count_up(f, kx, w.row_pieces, ky)


def _copy(
    f: Function, vectors: _Vectors, source: str, to: str, part: tuple[str, str], valid: tuple[str, str] | None
) -> None:
    """The elements ``part``; those that are not ``valid`` are zeros. Writes up to a vector more."""
    first, end = part
    lanes = str(vectors.lanes)
    at = f.variable("i64", first)
    if valid is None:
        with f.repeat(at, f.add(f.sub(end, lanes), "1")):
            i = f.get(at, "i64")
            vectors.store(vectors.load(f.floats(source, i)), f.floats(to, i))
            f.set(at, "i64", f.add(i, lanes))
    with f.repeat(at, end):
        i = f.get(at, "i64")
        mask = vectors.below(f.sub(f.min(valid[1], end) if valid else end, i))
        if valid:
            mask = f.value(f"and <{lanes} x i1> {mask}, {vectors.from_(f.sub(valid[0], i))}")
        vectors.store(vectors.load(f.floats(source, i), mask), f.floats(to, i))
        f.set(at, "i64", f.add(i, lanes))


def _count_up(f: Function, digit: str, base: str, next_digit: str, *more: str) -> None:
    """Adds 1 to a number whose digits are variables, the lowest first, each but the last with its base."""
    f.set(digit, "i64", f.add(f.get(digit, "i64"), "1"))
    with f.when(f.compare("eq", f.get(digit, "i64"), base)):
        f.set(digit, "i64", "0")
        if more:
            _count_up(f, next_digit, more[0], more[1], *more[2:])
        else:
            f.set(next_digit, "i64", f.add(f.get(next_digit, "i64"), "1"))


# --- depthwise convolutions ---

_DEPTHWISE: Final = ((4, 2), (1, 4))  # pixels in a row, and vectors; the last vectors come one by one
_PIXELS: Final = {
    **dict.fromkeys(("words", "x", "out", "other"), "ptr"),  # of the first pixel, where its filter begins
    **dict.fromkeys(("first_row", "end_row", "first_column", "end_column"), "i64"),  # of the filter
}


def _depthwise_pixels(shape: Shape, pixels: int, count: int) -> str:
    """All channels of some pixels in a row."""
    f = Function(f"depthwise_{pixels}", _PIXELS)
    w = _Words(f)
    lanes = shape.lanes
    at = f.variable("i64", "0")
    with f.repeat(at, f.add(f.sub(w.channels, str(count * lanes)), "1")):
        _depthwise_vectors(f, w, shape, (pixels, count), f.get(at, "i64"), None)
        f.set(at, "i64", f.add(f.get(at, "i64"), str(count * lanes)))
    with f.repeat(at, w.channels):
        channel = f.get(at, "i64")
        mask = _Vectors(f, shape).below(f.sub(w.channels, channel))
        _depthwise_vectors(f, w, shape, (pixels, 1), channel, mask)
        f.set(at, "i64", f.add(channel, str(lanes)))
    return f.text()


def _depthwise_vectors(
    f: Function, w: _Words, shape: Shape, size: tuple[int, int], channel: str, mask: str | None
) -> None:
    pixels, count = size
    vectors = _Vectors(f, shape)
    sums = [[f.variable(vectors.type, "zeroinitializer") for _ in range(count)] for _ in range(pixels)]
    with f.when(f.is_there(w.bias)):
        for v in range(count):
            value = vectors.load(f.floats(f.floats(w.bias, channel), v * shape.lanes), mask)
            for row in sums:
                f.set(row[v], vectors.type, value)
    padded = f.mul(f.div(f.add(w.channels, str(shape.lanes - 1)), str(shape.lanes)), str(shape.lanes))
    step = f.mul(w.stride_width, w.channels)
    tap = f.mul(w.dilation_width, w.channels)
    line = f.mul(f.mul(w.dilation_height, w.width), w.channels)
    with f.loop("%first_row", "%end_row") as ky:
        offset = f.add(f.add(f.mul(ky, line), f.mul("%first_column", tap)), channel)
        x = f.variable("ptr", f.floats("%x", offset))
        weight = f.add(f.mul(f.add(f.mul(ky, w.kernel_width), "%first_column"), padded), channel)
        b = f.variable("ptr", f.floats(w.packed, weight))
        with f.loop("%first_column", "%end_column"):
            weights = [vectors.load(f.floats(f.get(b, "ptr"), v * shape.lanes)) for v in range(count)]
            start = f.get(x, "ptr")
            for number, row in enumerate(sums):
                start = f.floats(start, step) if number else start
                for v in range(count):
                    value = vectors.load(f.floats(start, v * shape.lanes), mask)
                    made = vectors.multiply_add(value, weights[v], f.get(row[v], vectors.type))
                    f.set(row[v], vectors.type, made)
            f.set(x, "ptr", f.floats(f.get(x, "ptr"), tap))
            f.set(b, "ptr", f.floats(f.get(b, "ptr"), padded))
    low, high = _bounds(f, vectors, w.clamp)
    has_other = f.is_there("%other")
    for number, row in enumerate(sums):
        place = f.add(f.mul(w.channels, str(number)), channel)
        for v in range(count):
            here = f.floats(f.floats("%out", place), v * shape.lanes)
            with f.when(has_other):
                added = vectors.load(f.floats(f.floats("%other", place), v * shape.lanes), mask)
                f.set(row[v], vectors.type, vectors.add(f.get(row[v], vectors.type), added))
            vectors.store(vectors.clamp(f.get(row[v], vectors.type), low, high), here, mask)


def _depthwise_units() -> str:
    """Units of work: rows of the output."""
    f = Function("depthwise_units", {"words": "ptr", "begin": "i64", "end": "i64"})
    w = _Words(f)
    has_other = f.is_there(w.other)
    with f.loop("%begin", "%end") as unit:
        image = f.div(unit, w.out_height)
        y = f.sub(f.mul(f.sub(unit, f.mul(image, w.out_height)), w.stride_height), w.padding_height)
        rows = _taps(f, y, w.height, w.dilation_height, w.kernel_height)
        line = f.mul(f.add(f.mul(image, w.height), y), w.width)
        at = f.variable("i64", "0")

        def run(pixels: int) -> None:
            column = f.get(at, "i64")
            x = f.sub(f.mul(column, w.stride_width), w.padding_width)
            result = f.mul(f.add(f.mul(unit, w.out_width), column), w.out_channels)
            other = f.select(has_other, f.floats(w.other, result), "null", "ptr")
            source = f.floats(w.x, f.mul(f.add(line, x), w.channels))
            columns = ("0", w.kernel_width)
            if pixels == 1:
                columns = _taps(f, x, w.width, w.dilation_width, w.kernel_width)
            addresses = f"ptr %words, ptr {source}, ptr {f.floats(w.out, result)}, ptr {other}"
            taps = ", ".join(f"i64 {v}" for v in (*rows, *columns))
            f.effect(f"call void @depthwise_{pixels}({addresses}, {taps})")
            f.set(at, "i64", f.add(column, str(pixels)))

        several = _DEPTHWISE[0][0]
        with f.repeat(at, f.min(w.inner_first, w.out_width)):
            run(1)
        with f.repeat(at, f.add(f.sub(w.inner_end, str(several)), "1")):
            run(several)
        with f.repeat(at, w.out_width):
            run(1)
    return f.text()


def _taps(f: Function, first: str, size: str, dilation: str, taps: str) -> tuple[str, str]:
    """Those of the filter, along a dim, that are within the image: the first, and the one after the last."""
    before = f.max(f.sub("0", first), "0")
    start = f.div(f.sub(f.add(before, dilation), "1"), dilation)
    left = f.max(f.sub(size, first), "0")
    end = f.div(f.sub(f.add(left, dilation), "1"), dilation)
    return start, f.min(taps, end)
