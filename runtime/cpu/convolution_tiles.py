"""The code of a tile: sums of some pixels and some vectors of channels, in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from symshape.runtime.cpu.convolution_words import Shape, bounds
from symshape.runtime.cpu.llvm_text import Function
from symshape.runtime.cpu.llvm_vectors import Vectors

FIRST: Final = 1  # of the chunks of a sum
LAST: Final = 2
_LINE: Final = 16  # elements of a cache line
_AHEAD: Final = 1024  # elements: weights of the next block too, which follow, come from L3 or memory
TILE: Final = {
    # Inputs: of the first pixel, elements from one pixel to the next, and to skip after each segment of the sums.
    **{"a": "ptr", "step": "i64", "gap": "i64"},
    **{"b": "ptr", "segments": "i64", "length": "i64"},  # weights; of each segment
    **{"out": "ptr", "out_step": "i64", "bias": "ptr", "other": "ptr"},
    **{"channels": "i64", "chunks": "i64", "clamp": "i64"},  # channels that there are; which chunks this is
}


def tile(shape: Shape, pixels: int, count: int) -> str:
    """Sums of ``pixels`` pixels and ``count`` vectors."""
    f = Function(f"tile_{pixels}_{count}", TILE)
    vectors = Vectors(f, shape.lanes)
    masks = [vectors.below("%channels", lane) for lane in range(0, count * shape.lanes, shape.lanes)]
    sums = [[f.variable(vectors.type, "zeroinitializer") for _ in range(count)] for _ in range(pixels)]
    full = f.compare("sge", "%channels", str(count * shape.lanes))
    is_first = f.value("trunc i64 %chunks to i1")
    offsets = [f.mul("%out_step", str(row)) for row in range(pixels)]

    def rows(address: str) -> list[list[str]]:
        starts = [f.floats(address, offset) for offset in offsets]
        return [[f.floats(start, v * shape.lanes) for v in range(count)] for start in starts]

    with f.when(is_first):
        # Results are seldom in a cache: their lines arrive meanwhile.
        for addresses in rows("%out"):
            for address in addresses[:: _LINE // shape.lanes]:
                f.effect(f"call void @llvm.prefetch.p0(ptr {address}, i32 1, i32 3, i32 1)")
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
    is_last = f.compare("sge", "%chunks", str(LAST))
    low, high = bounds(f, vectors, "%clamp")
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


def _sum(f: Function, vectors: Vectors, sums: list[list[str]]) -> None:
    """Adds the products."""
    a, b = f.variable("ptr", "%a"), f.variable("ptr", "%b")
    with f.loop("0", "%segments"):
        with f.loop("0", "%length"):
            _add_products(f, vectors, sums, a, b)
        f.set(a, "ptr", f.floats(f.get(a, "ptr"), "%gap"))


def _add_products(f: Function, vectors: Vectors, sums: list[list[str]], a: str, b: str) -> None:
    """Adds the products of one input of each pixel. Its address is the previous pixel's plus a step, so that addresses
    need no registers."""
    count = len(sums[0])
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
