"""Generates the work of dense convolutions: which tiles a thread computes, in which order."""

from __future__ import annotations

from dataclasses import dataclass

from symshape.runtime.cpu.convolution_inputs import ENTRY, set_entry
from symshape.runtime.cpu.convolution_tiles import FIRST, LAST, TILE
from symshape.runtime.cpu.convolution_words import Shape, Words, follow
from symshape.runtime.cpu.llvm_text import Function


def _tile_pixels(f: Function, w: Words, tile: str) -> tuple[str, str]:
    """The first pixel of a tile, and their number."""
    first = f.add(f.mul(tile, w.tile_pixels), f.min(tile, w.larger_tiles))
    one_more = f.value(f"zext i1 {f.compare('slt', tile, w.larger_tiles)} to i64")
    return first, f.add(w.tile_pixels, one_more)


def dense_units(shape: Shape) -> str:
    """Units of work: (group, tiles that are computed together, block of output channels). A run of units of the same
    tiles copies their inputs once."""
    f = Function("dense_units", {"words": "ptr", "begin": "i64", "end": "i64"})
    w = Words(f)
    vectors = f.div(f.add(w.group_outputs, str(shape.lanes - 1)), str(shape.lanes))
    padded = f.mul(vectors, str(shape.lanes))
    blocks = f.div(f.add(w.group_outputs, str(shape.width - 1)), str(shape.width))
    batches = f.div(f.sub(f.add(w.tiles, w.together), "1"), w.together)
    tile_size = f.mul(w.row, str(shape.pixels))
    direct = f.compare("ne", w.direct, "0")
    size = f.select(direct, "1", f.mul(tile_size, w.together))
    buffer = f.value(f"alloca float, i64 {size}, align 64")
    table = f.value(f"alloca i64, i64 {f.mul(w.together, str(ENTRY))}")
    filter_row = f.mul(w.kernel_width, w.group_inputs)
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
            segments = f.max(f.div(f.sub(stop, start), filter_row), "1")
            length = f.div(f.sub(stop, start), segments)
            with f.loop(first, end) as tile:
                number = f.sub(tile, first)
                entry = _entry(f, table, number)
                pixel, count = _tile_pixels(f, w, tile)
                with f.when(direct):
                    inputs = f.add(f.mul(group, w.group_inputs), start)
                    read = f.floats(w.x, f.add(f.mul(pixel, w.channels), inputs))
                    set_entry(f, entry, read, w.channels, "0")
                with f.when(direct, False):
                    to = f.floats(buffer, f.mul(number, tile_size))
                    given = (f"ptr %words, ptr {entry}, ptr {to}", *(pixel, count, group, start, stop))
                    f.effect(f"call void @inputs({', i64 '.join(given)})")
            chunk_weights = f.add(group_weights, f.mul(start, padded))
            with f.loop(first_block, end_block) as block:
                before = f.mul(f.mul(block, f.sub(stop, start)), str(shape.width))
                here = _Block(group, block, start, stop, f.add(chunk_weights, before), segments, length)
                with f.loop(first, end) as tile:
                    _run_tile(f, w, shape, here, tile, vectors, _entry(f, table, f.sub(tile, first)))
    return f.text()


def _entry(f: Function, table: str, number: str) -> str:
    return f.value(f"getelementptr i64, ptr {table}, i64 {f.mul(number, str(ENTRY))}")


@dataclass(frozen=True)
class _Block:
    """A block of output channels in a part of the sums. ``weights``: where its weights start, in elements;
    ``segments``: of the sums, with the length of each: rows of the filter if the part consists of whole rows."""

    group: str
    block: str
    start: str
    stop: str
    weights: str
    segments: str
    length: str


def _run_tile(f: Function, w: Words, shape: Shape, at: _Block, tile: str, vectors: str, entry: str) -> None:
    count = f.min(str(shape.vectors), f.sub(vectors, f.mul(at.block, str(shape.vectors))))
    channel = f.mul(at.block, str(shape.width))
    there = f.sub(w.group_outputs, channel)
    channel = f.add(channel, f.mul(at.group, w.group_outputs))
    pixel, pixels = _tile_pixels(f, w, tile)
    inputs = f.address_word(entry, 0), f.word(entry, 1), f.word(entry, 2)
    weights = f.floats(w.packed, at.weights)
    result = f.add(f.mul(pixel, w.out_channels), channel)
    bias = f.select(f.is_there(w.bias), f.floats(w.bias, channel), "null", "ptr")
    other = f.select(f.is_there(w.other), f.floats(w.other, result), "null", "ptr")
    first = f.select(f.compare("eq", at.start, "0"), str(FIRST), "0")
    chunks = f.add(first, f.select(f.compare("eq", at.stop, w.length), str(LAST), "0"))
    index = f.add(f.mul(f.sub(count, "1"), str(shape.pixels)), f.sub(pixels, "1"))
    code = f.value(f"load ptr, ptr {f.value(f'getelementptr ptr, ptr @tiles, i64 {index}')}")
    values = (*inputs, weights, at.segments, at.length, f.floats(w.out, result), w.out_channels)
    given = (*values, bias, other, there, chunks, w.clamp)
    f.effect(f"call void {code}({', '.join(f'{t} {v}' for t, v in zip(TILE.values(), given, strict=True))})")
    with f.when(f.compare("eq", at.stop, w.length)):
        follow(f, w, pixel, pixels, channel, f.min(there, str(shape.width)))
