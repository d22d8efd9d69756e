"""Generates the code that finds the inputs of a tile: in the image, or in a buffer that they are copied to."""

from __future__ import annotations

from typing import Final

from symshape.runtime.cpu.convolution_words import Shape, Words
from symshape.runtime.cpu.llvm_text import Function
from symshape.runtime.cpu.llvm_vectors import Vectors

ENTRY: Final = 3  # words of a tile: where its inputs are, from pixel to pixel, and after a segment


def inputs(shape: Shape) -> str:
    """A function that finds the inputs ``start`` to ``stop`` of the sums of some pixels: in the image, if the pixels
    are in one row and their windows inside of the image, else in a row of the buffer ``to`` per pixel."""
    names = ("pixel", "count", "group", "start", "stop")
    f = Function("inputs", {"words": "ptr", "found": "ptr", "to": "ptr", **dict.fromkeys(names, "i64")})
    w = Words(f)
    size = f.mul(w.piece_taps, w.group_inputs)
    first_piece = f.div("%start", size)
    first_row = f.div(first_piece, w.row_pieces)
    first_column = f.sub(first_piece, f.mul(first_row, w.row_pieces))
    skipped = f.sub("%start", f.mul(first_piece, size))
    ox, oy, image = _place_of_first(f, w)
    inner_height, inner_width = (
        f.sub(size, f.mul(f.sub(taps, "1"), dilation))
        for size, taps, dilation in (
            (w.height, w.kernel_height, w.dilation_height),
            (w.width, w.kernel_width, w.dilation_width),
        )
    )
    first_input = f.mul("%group", w.group_inputs)

    def window() -> tuple[str, str, str]:
        """The start of the window of the pixel in the variables, and its address."""
        y = f.sub(f.mul(f.get(oy, "i64"), w.stride_height), w.padding_height)
        x = f.sub(f.mul(f.get(ox, "i64"), w.stride_width), w.padding_width)
        line = f.mul(f.add(f.mul(f.get(image, "i64"), w.height), y), w.width)
        return y, x, f.floats(w.x, f.add(f.mul(f.add(line, x), w.channels), first_input))

    y, x, source = window()
    last = f.sub(f.add(f.get(ox, "i64"), "%count"), "1")
    last_x = f.sub(f.mul(last, w.stride_width), w.padding_width)
    starts_inside = f.both(f.compare("sge", x, "0"), f.compare("sge", y, "0"))
    ends_inside = f.both(f.compare("slt", last_x, inner_width), f.compare("slt", y, inner_height))
    in_one_row = f.both(f.compare("slt", last, w.out_width), f.compare("ne", w.direct_rows, "0"))
    is_direct = f.both(f.both(starts_inside, ends_inside), in_one_row)
    with f.when(is_direct):
        line = f.mul(f.mul(w.dilation_height, w.width), w.channels)
        begin = f.floats(source, f.add(f.mul(first_piece, line), skipped))
        set_entry(f, "%found", begin, f.mul(w.stride_width, w.channels), f.sub(line, size))
    with f.when(is_direct, False):
        set_entry(f, "%found", "%to", w.row, "0")
        with f.loop("0", "%count") as number:
            to = f.floats("%to", f.sub(f.mul(number, w.row), "%start"))
            y, x, source = window()
            is_inner = f.both(
                f.both(f.compare("sge", y, "0"), f.compare("slt", y, inner_height)),
                f.both(f.compare("sge", x, "0"), f.compare("slt", x, inner_width)),
            )
            vectors = Vectors(f, shape.lanes)
            is_scaled = f.is_there(w.scale)
            with f.when(is_scaled):
                _copy_scaled(f, w, vectors, source, to, f.get(image, "i64"))
            with f.when(is_scaled, False):
                for inner in True, False:
                    with f.when(is_inner, inner):
                        piece = tuple(f.variable("i64", v) for v in (first_row, first_column, skipped))
                        _copy_pieces(f, w, vectors, piece, size, source, to, None if inner else (y, x))
            _count_up(f, ox, w.out_width, oy, w.out_height, image)
    return f.text()


def _place_of_first(f: Function, w: Words) -> tuple[str, str, str]:
    """Variables for the column, the row and the image of the first pixel."""
    row_of_all = f.div("%pixel", w.out_width)
    ox = f.variable("i64", f.sub("%pixel", f.mul(row_of_all, w.out_width)))
    image = f.variable("i64", f.div(row_of_all, w.out_height))
    oy = f.variable("i64", f.sub(row_of_all, f.mul(f.get(image, "i64"), w.out_height)))
    return ox, oy, image


def _copy_scaled(f: Function, w: Words, vectors: Vectors, source: str, to: str, image: str) -> None:
    """Copies the inputs ``start`` to ``stop`` of a pixel, for a filter of one pixel, times their scale. Writes up to a
    vector more."""
    scale = f.floats(w.scale, f.mul(image, w.scale_step))
    with f.loop("%start", "%stop", str(vectors.lanes)) as i:
        mask = vectors.below(f.sub("%stop", i))
        product = vectors.mul(vectors.load(f.floats(source, i), mask), vectors.load(f.floats(scale, i), mask))
        vectors.store(product, f.floats(to, i))


def _copy_pieces(
    f: Function,
    w: Words,
    vectors: Vectors,
    piece: tuple[str, ...],
    size: str,
    source: str,
    to: str,
    pixel: tuple[str, str] | None,
) -> None:
    """Copies the inputs of a pixel. ``piece``: where to start: a row of the filter, the piece in it, and elements to
    skip. ``source``: where the filter starts, at row and column ``pixel``; None if all of it is inside of the image."""
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
    f: Function, vectors: Vectors, source: str, to: str, part: tuple[str, str], valid: tuple[str, str] | None
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


def set_entry(f: Function, entry: str, address: str, step: str, gap: str) -> None:
    """Writes the words of a tile."""
    words = f.value(f"ptrtoint ptr {address} to i64"), step, gap
    for index, word in enumerate(words):
        f.set(f.value(f"getelementptr i64, ptr {entry}, i64 {index}"), "i64", word)
