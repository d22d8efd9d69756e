"""Generates the code of depthwise convolutions, which are vectorised along channels of the input."""

from __future__ import annotations

from typing import Final

from symshape.runtime.cpu.convolution_words import Shape, Words, bounds, follow
from symshape.runtime.cpu.llvm_text import Function
from symshape.runtime.cpu.llvm_vectors import Vectors

DEPTHWISE: Final = ((4, 2), (1, 4))  # pixels in a row, and vectors; the last vectors come one by one
_PIXELS: Final = {
    **dict.fromkeys(("words", "x", "out", "other"), "ptr"),  # of the first pixel, where its filter begins
    **dict.fromkeys(("first_row", "end_row", "first_column", "end_column"), "i64"),  # of the filter
    **{"groups": "i64", "pixel": "i64"},  # of so many pixels, one after another; the first one's number
}


def depthwise_pixels(shape: Shape, pixels: int, count: int) -> str:
    """A function that computes all channels of groups of some adjacent pixels of a row."""
    f = Function(f"depthwise_{pixels}", _PIXELS)
    w = Words(f)
    lanes = shape.lanes
    has_other = f.is_there("%other")
    with f.loop("0", "%groups") as group:
        first = f.mul(group, str(pixels))
        result = f.mul(first, w.channels)
        other = f.select(has_other, f.floats("%other", result), "null", "ptr")
        memory = f.floats("%x", f.mul(result, w.stride_width)), f.floats("%out", result), other
        at = f.variable("i64", "0")
        with f.repeat(at, f.add(f.sub(w.channels, str(count * lanes)), "1")):
            _depthwise_vectors(f, w, shape, (pixels, count), memory, f.get(at, "i64"), None)
            f.set(at, "i64", f.add(f.get(at, "i64"), str(count * lanes)))
        with f.repeat(at, w.channels):
            channel = f.get(at, "i64")
            mask = Vectors(f, shape.lanes).below(f.sub(w.channels, channel))
            _depthwise_vectors(f, w, shape, (pixels, 1), memory, channel, mask)
            f.set(at, "i64", f.add(channel, str(lanes)))
        follow(f, w, f.add("%pixel", first), str(pixels), "0", w.channels)
    return f.text()


def _depthwise_vectors(
    f: Function,
    w: Words,
    shape: Shape,
    size: tuple[int, int],
    memory: tuple[str, str, str],
    channel: str,
    mask: str | None,
) -> None:
    """Computes vectors of channels of some pixels, from a channel on. ``memory``: of the first pixel, the addresses of
    the input, the result, and the tensor that is added."""
    (pixels, count), (source, out, other) = size, memory
    vectors = Vectors(f, shape.lanes)
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
        x = f.variable("ptr", f.floats(source, offset))
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
    low, high = bounds(f, vectors, w.clamp)
    has_other = f.is_there(other)
    for number, row in enumerate(sums):
        place = f.add(f.mul(w.channels, str(number)), channel)
        for v in range(count):
            here = f.floats(f.floats(out, place), v * shape.lanes)
            with f.when(has_other):
                added = vectors.load(f.floats(f.floats(other, place), v * shape.lanes), mask)
                f.set(row[v], vectors.type, vectors.add(f.get(row[v], vectors.type), added))
            vectors.store(vectors.clamp(f.get(row[v], vectors.type), low, high), here, mask)


def depthwise_units() -> str:
    """Units of work: rows of the output."""
    f = Function("depthwise_units", {"words": "ptr", "begin": "i64", "end": "i64"})
    w = Words(f)
    has_other = f.is_there(w.other)
    with f.loop("%begin", "%end") as unit:
        image = f.div(unit, w.out_height)
        y = f.sub(f.mul(f.sub(unit, f.mul(image, w.out_height)), w.stride_height), w.padding_height)
        rows = _taps(f, y, w.height, w.dilation_height, w.kernel_height)
        line = f.mul(f.add(f.mul(image, w.height), y), w.width)
        at = f.variable("i64", "0")

        def run(pixels: int, groups: str = "1") -> None:
            column = f.get(at, "i64")
            x = f.sub(f.mul(column, w.stride_width), w.padding_width)
            pixel = f.add(f.mul(unit, w.out_width), column)
            result = f.mul(pixel, w.out_channels)
            other = f.select(has_other, f.floats(w.other, result), "null", "ptr")
            source = f.floats(w.x, f.mul(f.add(line, x), w.channels))
            columns = ("0", w.kernel_width)
            if pixels == 1:
                columns = _taps(f, x, w.width, w.dilation_width, w.kernel_width)
            addresses = f"ptr %words, ptr {source}, ptr {f.floats(w.out, result)}, ptr {other}"
            taps = ", ".join(f"i64 {v}" for v in (*rows, *columns, groups, pixel))
            f.effect(f"call void @depthwise_{pixels}({addresses}, {taps})")
            f.set(at, "i64", f.add(column, f.mul(groups, str(pixels))))

        several = DEPTHWISE[0][0]
        with f.repeat(at, f.min(w.inner_first, w.out_width)):
            run(1)
        groups = f.div(f.max(f.sub(w.inner_end, f.get(at, "i64")), "0"), str(several))
        run(several, groups)
        with f.repeat(at, w.out_width):
            run(1)
    return f.text()


def _taps(f: Function, first: str, size: str, dilation: str, taps: str) -> tuple[str, str]:
    """(first, end): the taps of the filter, along a dim, that are inside of the image."""
    before = f.max(f.sub("0", first), "0")
    start = f.div(f.sub(f.add(before, dilation), "1"), dilation)
    left = f.max(f.sub(size, first), "0")
    end = f.div(f.sub(f.add(left, dilation), "1"), dilation)
    return start, f.min(taps, end)
