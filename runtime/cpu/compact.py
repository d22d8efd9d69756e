"""The positions where a mask is true, on CPUs: two branch-free sweeps on all of PyTorch's threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import torch

from symshape.machine.instruction_sets import NATIVE
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.cpu.machine_code import SHARE, object_code

CHUNK: Final = 32768  # elements that a thread counts, and later writes, at a time

# Of each thread's share, every chunk: the code of one follows, up to a block "chunk_done".
_LOOP = """entry:
  %first_at = alloca i64
  %end_at = alloca i64
  call void @share(ptr %words, ptr %first_at, ptr %end_at)
  %first = load i64, ptr %first_at
  %end = load i64, ptr %end_at
  %mask_word = call i64 @word(ptr %words, i64 0)
  %mask = inttoptr i64 %mask_word to ptr
  %length = call i64 @word(ptr %words, i64 2)
  %starts_word = call i64 @word(ptr %words, i64 4)
  %starts = inttoptr i64 %starts_word to ptr
  br label %chunks
chunks:
  %chunk = phi i64 [ %first, %entry ], [ %chunk_next, %chunk_done ]
  %more = icmp slt i64 %chunk, %end
  br i1 %more, label %chunk_start, label %done
done:
  ret void
chunk_start:
  %chunk_next = add i64 %chunk, 1
  %low = mul i64 %chunk, %length
  %start_at = getelementptr i64, ptr %starts, i64 %chunk"""

# Words: mask, its elements, elements of a chunk, chunks, how many are selected before each chunk (and before the end),
# positions. A chunk's loop ends with its last selected element: what it writes ahead is its own.
_CODE = """
SHARE_AMONG_THREADS
define internal void @count_chunks(ptr %words) {
LOOP_OVER_CHUNKS
  %n = call i64 @word(ptr %words, i64 1)
  %high_full = add i64 %low, %length
  %high = call i64 @llvm.smin.i64(i64 %high_full, i64 %n)
  br label %elements
elements:
  %i = phi i64 [ %low, %chunk_start ], [ %i_next, %element ]
  %total = phi i32 [ 0, %chunk_start ], [ %total_next, %element ]
  %inside = icmp slt i64 %i, %high
  br i1 %inside, label %element, label %chunk_done
element:
  %at = getelementptr i8, ptr %mask, i64 %i
  %byte = load i8, ptr %at
  %is_set = icmp ne i8 %byte, 0
  %one = zext i1 %is_set to i32
  %total_next = add i32 %total, %one
  %i_next = add i64 %i, 1
  br label %elements
chunk_done:
  %count = zext i32 %total to i64
  store i64 %count, ptr %start_at
  br label %chunks
}

define internal void @write_chunks(ptr %words) {
LOOP_OVER_CHUNKS
  %positions_word = call i64 @word(ptr %words, i64 5)
  %positions = inttoptr i64 %positions_word to ptr
  %start = load i64, ptr %start_at
  %stop_at = getelementptr i64, ptr %starts, i64 %chunk_next
  %stop = load i64, ptr %stop_at
  br label %elements
elements:
  %i = phi i64 [ %low, %chunk_start ], [ %i_next, %element ]
  %k = phi i64 [ %start, %chunk_start ], [ %k_next, %element ]
  %inside = icmp slt i64 %k, %stop
  br i1 %inside, label %element, label %chunk_done
element:
  %slot = getelementptr i64, ptr %positions, i64 %k
  store i64 %i, ptr %slot
  %at = getelementptr i8, ptr %mask, i64 %i
  %byte = load i8, ptr %at
  %is_set = icmp ne i8 %byte, 0
  %one = zext i1 %is_set to i64
  %k_next = add i64 %k, %one
  %i_next = add i64 %i, 1
  br label %elements
chunk_done:
  br label %chunks
}

declare i64 @llvm.smin.i64(i64, i64)

define internal i32 @threads(ptr %words) alwaysinline {
  %chunks = call i64 @word(ptr %words, i64 3)
  %single = icmp sle i64 %chunks, 2
  %threads = select i1 %single, i32 1, i32 0
  ret i32 %threads
}

define void @count(ptr %words) {
entry:
  %threads = call i32 @threads(ptr %words)
  call void @GOMP_parallel(ptr @count_chunks, ptr %words, i32 %threads, i32 0)
  %chunks = call i64 @word(ptr %words, i64 3)
  %starts_word = call i64 @word(ptr %words, i64 4)
  %starts = inttoptr i64 %starts_word to ptr
  br label %scan
scan:
  %chunk = phi i64 [ 0, %entry ], [ %chunk_next, %body ]
  %total = phi i64 [ 0, %entry ], [ %total_next, %body ]
  %at = getelementptr i64, ptr %starts, i64 %chunk
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %body, label %done
body:
  %count = load i64, ptr %at
  store i64 %total, ptr %at
  %total_next = add i64 %total, %count
  %chunk_next = add i64 %chunk, 1
  br label %scan
done:
  store i64 %total, ptr %at
  ret void
}

define void @write(ptr %words) {
  %threads = call i32 @threads(ptr %words)
  call void @GOMP_parallel(ptr @write_chunks, ptr %words, i32 %threads, i32 0)
  ret void
}
""".replace("LOOP_OVER_CHUNKS", _LOOP).replace("SHARE_AMONG_THREADS", SHARE)


def positions(mask: torch.Tensor, level: str = NATIVE) -> torch.Tensor:
    """int64: where a bool tensor is true, as row-major positions in it, in order, by code for a level."""
    mask = mask.contiguous()
    n = mask.numel()
    chunks = -(-n // CHUNK)
    starts = torch.empty(chunks + 1, dtype=torch.int64)
    words = [mask.data_ptr(), n, CHUNK, chunks, starts.data_ptr()]
    count, write = _functions(level)
    count(*words, 0)
    found = torch.empty(int(starts[-1]), dtype=torch.int64)
    write(*words, found.data_ptr())
    return found


@cache
def _functions(level: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """``count(*words)`` and ``write(*words)``. OptionError for a level that this processor has not."""
    library = Library(object_code(_CODE, level))
    return library.function("count", 6), library.function("write", 6)
