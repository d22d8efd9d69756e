"""The arguments of the code of convolutions, and the shape of its largest tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from symshape.machine import instruction_sets
from symshape.runtime.cpu.llvm_text import Function
from symshape.runtime.cpu.llvm_vectors import Vectors
from symshape.runtime.epilogues import MOST_OPERANDS


@dataclass(frozen=True)
class Shape:
    """The shape of the largest tile: ``pixels`` times ``vectors`` of ``lanes`` channels; ``fast_masks`` as in
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
    """The shape for an instruction-set level: accumulators, weights and an input fit into the vector registers."""
    native = level == instruction_sets.NATIVE
    has = instruction_sets.host_features() if native else set(instruction_sets.features(level))
    if has >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}:
        return Shape(16, 14, True)
    return Shape(8 if has >= {"avx2", "fma"} else 4, 6, False)


_OPERANDS: Final = range(MOST_OPERANDS)
# Addresses, 0 for what there is not. `scale`: what inputs are multiplied by; `other`: a tensor that is added;
# `operand_0`: of the rest of the epilogue.
ADDRESSES: Final = ("x", "packed", "bias", "scale", "other", "out", *(f"operand_{i}" for i in _OPERANDS))
# The arguments of an entry, in int64; sizes are in elements.
WORDS: Final = (
    *ADDRESSES,
    *("units", "parts", "clamp"),  # parts: threads that the work is worth; clamp: two float32
    "follow",  # the function of the rest of the epilogue, or 0
    # Elements from one image, and from one pixel to the next, of the epilogue's operands; pixels of a result's image.
    *(f"{step}_{i}" for i in _OPERANDS for step in ("image_step", "pixel_step")),
    "image_pixels",
    "scale_step",  # from one image to the next
    *("height", "width", "channels", "out_height", "out_width", "out_channels"),
    *("kernel_height", "kernel_width", "stride_height", "stride_width"),
    *("padding_height", "padding_width", "dilation_height", "dilation_width"),
    # Of dense convolutions: what a group has; whether inputs are read where they are, of all tiles or of those in a row
    # of the image; elements of a copied row; tiles, how many are computed together, their pixels, and how many tiles
    # have one more.
    *("group_inputs", "group_outputs", "direct", "direct_rows", "row"),
    *("tiles", "together", "tile_pixels", "larger_tiles"),
    # A sum's length, and the part of it that is computed at a time; the filter's taps that are one piece of memory, and
    # pieces in a row of the filter.
    *("length", "chunk", "piece_taps", "row_pieces"),
    # Of depthwise ones: the first output column whose filter is within the image, and the one after the last.
    *("inner_first", "inner_end"),
)


class Words:
    """The arguments of an entry, each read once."""

    def __init__(self, f: Function) -> None:
        self._read = {
            name: f.address_word("%words", index) if name in ADDRESSES else f.word("%words", index)
            for index, name in enumerate(WORDS)
        }

    def __getattr__(self, name: str) -> str:
        return self._read[name]

    def __getitem__(self, name: str) -> str:
        return self._read[name]


def bounds(function: Function, vectors: Vectors, clamp: str) -> tuple[str, str]:
    """The two float32 of a word, each in all lanes."""
    found = []
    for shift in (0, 32):
        bits = function.value(f"trunc i64 {function.value(f'lshr i64 {clamp}, {shift}')} to i32")
        found.append(vectors.splat(function.value(f"bitcast i32 {bits} to float")))
    return found[0], found[1]


def follow(f: Function, w: Words, pixel: str, pixels: str, channel: str, channels: str) -> None:
    """Applies the rest of the epilogue, if there is any, to pixels of the result."""
    with f.when(f.compare("ne", w.follow, "0")):
        code = f.value(f"inttoptr i64 {w.follow} to ptr")
        given = ", ".join(f"i64 {one}" for one in (pixel, pixels, channel, channels))
        f.effect(f"call void {code}(ptr %words, {given})")
