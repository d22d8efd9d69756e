"""Hashes of the contents of tensors on a CPU, as fast as memory is read, on all of PyTorch's threads.

A change of a single 32-bit word always changes the hash; any other change is missed with a probability near 2**-64.
(The accumulation is that of XXH3, with a different key for each stripe: github.com/Cyan4973/xxHash.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Final

from symshape.machine.instruction_sets import NATIVE
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.cpu.machine_code import SHARE, object_code

CHUNK: Final = 1 << 16  # bytes that a thread hashes at a time
_STRIPE: Final = 256  # bytes of a step of the inner loop: four vectors of eight words
_LEAST: Final = 1 << 18  # bytes that are worth a second thread


class ContentHash:
    """``hash(addresses)``: bytes that differ where the contents differ. ``sizes``: bytes of each tensor's memory, which
    is one range."""

    def __init__(self, sizes: Sequence[int], level: str = NATIVE) -> None:
        rows = [(i, at, min(CHUNK, size - at)) for i, size in enumerate(sizes) for at in range(0, size, CHUNK)]
        self._chunks = len(rows)
        self._table = (ctypes.c_int64 * (3 * len(rows)))(*(word for row in rows for word in row))
        self._pack = Struct(f"={len(sizes)}q").pack
        self._threads = 1 if sum(sizes) < _LEAST else 0
        self._function = _function(level)

    def __call__(self, addresses: Sequence[int]) -> bytes:
        tensors = ctypes.create_string_buffer(self._pack(*addresses))
        found = ctypes.create_string_buffer(8 * self._chunks)
        places = (ctypes.addressof(tensors), ctypes.addressof(self._table), ctypes.addressof(found))
        self._function(*places, self._chunks, self._threads)
        return found.raw


_OFFSETS = range(4)


def _vector(words: Sequence[int]) -> str:
    return f"<{', '.join(f'i64 {word - (word >> 63 << 64)}' for word in words)}>"


def _random_words(seed: int, count: int) -> list[int]:
    """Odd words whose bits look random: multiples of 2**64 over the golden ratio, mixed as splitmix64 does."""
    found = []
    for i in range(seed, seed + count):
        word = (i + 1) * 0x9E3779B97F4A7C15 % 2**64
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        found.append((word ^ word >> 31) | 1)
    return found


def _mixing() -> str:
    """Adds a word, or a vector of words, to an accumulator: the product of its halves xored with the key, and
    itself."""
    text = []
    for name, kind, splat in (("vector", "<8 x i64>", lambda n: _vector([n] * 8)), ("word", "i64", str)):
        text.append(f"""
define internal {kind} @mix_{name}({kind} %sum, {kind} %x, {kind} %key) alwaysinline {{
  %y = xor {kind} %x, %key
  %low = and {kind} %y, {splat(0xFFFFFFFF)}
  %high = lshr {kind} %y, {splat(32)}
  %product = mul {kind} %low, %high
  %up = shl {kind} %x, {splat(32)}
  %down = lshr {kind} %x, {splat(32)}
  %swapped = or {kind} %up, %down
  %more = add {kind} %product, %swapped
  %next = add {kind} %sum, %more
  ret {kind} %next
}}""")
    return "\n".join(text)


def _stripe() -> str:
    """The loop over stripes: four accumulators."""
    lines = ["stripes:", "  %i = phi i64 [ 0, %entry ], [ %i_next, %stripe ]"]
    lines.append(f"  %key = phi <8 x i64> [ {_vector(_random_words(0, 8))}, %entry ], [ %key_next, %stripe ]")
    for j in _OFFSETS:
        start = _vector(_random_words(8 + 8 * j, 8))
        lines.append(f"  %sum{j} = phi <8 x i64> [ {start}, %entry ], [ %sum{j}_next, %stripe ]")
    lines.append(f"  %i_next = add i64 %i, {_STRIPE}")
    lines += ["  %fits = icmp sle i64 %i_next, %size", "  br i1 %fits, label %stripe, label %fold", "stripe:"]
    for j in _OFFSETS:
        lines.append(f"  %at{j} = add i64 %i, {64 * j}")
        lines.append(f"  %p{j} = getelementptr i8, ptr %data, i64 %at{j}")
        lines.append(f"  %x{j} = load <8 x i64>, ptr %p{j}, align 1")
        lines.append(f"  %key{j} = add <8 x i64> %key, {_vector(_random_words(40 + 8 * j, 8))}")
        arguments = f"<8 x i64> %sum{j}, <8 x i64> %x{j}, <8 x i64> %key{j}"
        lines.append(f"  %sum{j}_next = call <8 x i64> @mix_vector({arguments})")
    lines.append(f"  %key_next = add <8 x i64> %key, {_vector(_random_words(72, 8))}")
    lines.append("  br label %stripes")
    return "\n".join(lines)


def _fold() -> str:
    """The accumulators become one word: each step can be undone, so that no change of one of them is lost."""
    lines, last = ["fold:"], "%size"
    for j in _OFFSETS:
        for lane in range(8):
            lines.append(f"  %lane{j}_{lane} = extractelement <8 x i64> %sum{j}, i64 {lane}")
            lines.append(f"  %turned{j}_{lane} = mul i64 {last}, {_random_words(100, 1)[0] - 2**64}")
            lines.append(f"  %shifted{j}_{lane} = lshr i64 %turned{j}_{lane}, 29")
            lines.append(f"  %mixed{j}_{lane} = xor i64 %turned{j}_{lane}, %shifted{j}_{lane}")
            last = f"%folded{j}_{lane}"
            lines.append(f"  {last} = add i64 %mixed{j}_{lane}, %lane{j}_{lane}")
    return "\n".join([*lines, "  br label %words"])


# The rest after the last stripe: words, then bytes.
_REST = f"""
words:
  %w = phi i64 [ %i, %fold ], [ %w_next, %word ]
  %word_sum = phi i64 [ %folded3_7, %fold ], [ %word_sum_next, %word ]
  %w_next = add i64 %w, 8
  %word_fits = icmp sle i64 %w_next, %size
  br i1 %word_fits, label %word, label %bytes
word:
  %word_at = getelementptr i8, ptr %data, i64 %w
  %word_x = load i64, ptr %word_at, align 1
  %word_key = mul i64 %w_next, {_random_words(101, 1)[0] - 2**64}
  %word_turned = mul i64 %word_sum, {_random_words(102, 1)[0] - 2**64}
  %word_sum_next = call i64 @mix_word(i64 %word_turned, i64 %word_x, i64 %word_key)
  br label %words
bytes:
  %b = phi i64 [ %w, %words ], [ %b_next, %byte ]
  %byte_sum = phi i64 [ %word_sum, %words ], [ %byte_sum_next, %byte ]
  %byte_fits = icmp slt i64 %b, %size
  br i1 %byte_fits, label %byte, label %done
byte:
  %b_next = add i64 %b, 1
  %byte_at = getelementptr i8, ptr %data, i64 %b
  %byte_x = load i8, ptr %byte_at
  %byte_wide = zext i8 %byte_x to i64
  %byte_turned = mul i64 %byte_sum, {_random_words(103, 1)[0] - 2**64}
  %byte_sum_next = add i64 %byte_turned, %byte_wide
  br label %bytes
done:
  ret i64 %byte_sum
}}"""

# Words: addresses of tensors, table of chunks (tensor, offset, bytes), where the hashes go, chunks, threads (0: all).
_DRIVER = """
define internal ptr @pointer_of(ptr %words, i64 %index) alwaysinline {
  %word = call i64 @word(ptr %words, i64 %index)
  %pointer = inttoptr i64 %word to ptr
  ret ptr %pointer
}

define internal void @hash_chunks(ptr %words) {
entry:
  %tensors = call ptr @pointer_of(ptr %words, i64 0)
  %table = call ptr @pointer_of(ptr %words, i64 1)
  %hashes = call ptr @pointer_of(ptr %words, i64 2)
  %first_at = alloca i64
  %end_at = alloca i64
  call void @share(ptr %words, ptr %first_at, ptr %end_at)
  %begin = load i64, ptr %first_at
  %end = load i64, ptr %end_at
  br label %loop
loop:
  %chunk = phi i64 [ %begin, %entry ], [ %chunk_next, %body ]
  %more = icmp slt i64 %chunk, %end
  br i1 %more, label %body, label %done
body:
  %row = mul i64 %chunk, 3
  %row1 = add i64 %row, 1
  %row2 = add i64 %row, 2
  %tensor = call i64 @word(ptr %table, i64 %row)
  %offset = call i64 @word(ptr %table, i64 %row1)
  %size = call i64 @word(ptr %table, i64 %row2)
  %base = call ptr @pointer_of(ptr %tensors, i64 %tensor)
  %data = getelementptr i8, ptr %base, i64 %offset
  %hash = call i64 @hash(ptr %data, i64 %size)
  %slot = getelementptr i64, ptr %hashes, i64 %chunk
  store i64 %hash, ptr %slot, align 1
  %chunk_next = add i64 %chunk, 1
  br label %loop
done:
  ret void
}

define void @hash_contents(ptr %words) {
  %wide = call i64 @word(ptr %words, i64 4)
  %threads = trunc i64 %wide to i32
  call void @GOMP_parallel(ptr @hash_chunks, ptr %words, i32 %threads, i32 0)
  ret void
}
"""


def _code() -> str:
    head = "define internal i64 @hash(ptr %data, i64 %size) {\nentry:\n  br label %stripes"
    return "\n".join([_mixing(), head, _stripe(), _fold(), _REST, SHARE, _DRIVER])


@cache
def _function(level: str) -> Callable[..., None]:
    """``function(addresses, table, hashes, chunks, threads)``. OptionError for a level that this processor has not."""
    return Library(object_code(_code(), level)).function("hash_contents", 5)
