"""Runs a segment of a host program (``codegen/host/segments.py``) as one call of machine code, for sizes that come
again.

At the second call with the same layouts the segment's lines are run once more with stand-ins for tensors, which record
the calls of machine code: their words, and which of these are addresses. From then on a call is: memory for results,
one block of memory for everything in between, and one function that writes the addresses into a copy of the words and
makes all calls. What lives at different times shares memory (`planned`), so that a layer finds its inputs in a cache.

After CUDA graphs; the plan is the greedy one by size of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural
Net Inference" (2020, arXiv:2001.03288).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Collection, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Final

import torch

from symshape.machine.instruction_sets import NATIVE
from symshape.machine.targets import CPU_CACHE_LINE
from symshape.runtime.cpu.kept_memory import empty_strided_cpu
from symshape.runtime.cpu.kept_objects import kept_object
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.cpu.machine_code import WORD
from symshape.runtime.cpu.recorder import Address, Buffer, Call, Recording, StandIn, Unrecordable, record
from symshape.runtime.torch_c import reinterpret_tensor

_MOST: Final = 64  # layouts that a segment is recorded for
_STEPS: Final = 8  # sizes of blocks between a power of two and the next: similar sizes share kept memory
_HEAD: Final = 7  # words before the bases

# Words: calls (address, offset of the words in bytes), how many; the recorded words, how many; the addresses among
# them (offset in bytes, number of a base, offset from it), how many; where the copy goes; bases.
_REPLAY: Final = f"""
{WORD}
define internal ptr @pointer(ptr %words, i64 %index) alwaysinline {{
  %word = call i64 @word(ptr %words, i64 %index)
  %pointer = inttoptr i64 %word to ptr
  ret ptr %pointer
}}

define void @replay(ptr %words) {{
entry:
  %calls = call ptr @pointer(ptr %words, i64 0)
  %call_count = call i64 @word(ptr %words, i64 1)
  %recorded = call ptr @pointer(ptr %words, i64 2)
  %count = call i64 @word(ptr %words, i64 3)
  %places = call ptr @pointer(ptr %words, i64 4)
  %place_count = call i64 @word(ptr %words, i64 5)
  %to = call ptr @pointer(ptr %words, i64 6)
  br label %copy
copy:
  %i = phi i64 [ 0, %entry ], [ %i_next, %copy_word ]
  %copies = icmp slt i64 %i, %count
  br i1 %copies, label %copy_word, label %place
copy_word:
  %value = call i64 @word(ptr %recorded, i64 %i)
  %copy_at = getelementptr i64, ptr %to, i64 %i
  store i64 %value, ptr %copy_at
  %i_next = add i64 %i, 1
  br label %copy
place:
  %j = phi i64 [ 0, %copy ], [ %j_next, %place_word ]
  %places_more = icmp slt i64 %j, %place_count
  br i1 %places_more, label %place_word, label %calling
place_word:
  %row = mul i64 %j, 3
  %row1 = add i64 %row, 1
  %row2 = add i64 %row, 2
  %where = call i64 @word(ptr %places, i64 %row)
  %number = call i64 @word(ptr %places, i64 %row1)
  %offset = call i64 @word(ptr %places, i64 %row2)
  %base_at = add i64 %number, {_HEAD}
  %base = call i64 @word(ptr %words, i64 %base_at)
  %address = add i64 %base, %offset
  %place_at = getelementptr i64, ptr %to, i64 %where
  store i64 %address, ptr %place_at
  %j_next = add i64 %j, 1
  br label %place
calling:
  %k = phi i64 [ 0, %place ], [ %k_next, %call ]
  %more = icmp slt i64 %k, %call_count
  br i1 %more, label %call, label %done
call:
  %pair = mul i64 %k, 2
  %pair1 = add i64 %pair, 1
  %function = call ptr @pointer(ptr %calls, i64 %pair)
  %first = call i64 @word(ptr %calls, i64 %pair1)
  %given = getelementptr i64, ptr %to, i64 %first
  call void %function(ptr %given)
  %k_next = add i64 %k, 1
  br label %calling
done:
  ret void
}}
"""


@cache
def _replay() -> Callable[[bytes], None]:
    return Library(kept_object("replay", _REPLAY, NATIVE)).function_of_bytes("replay")


class Segment:
    """A function of a host program that `with_segments` made. ``kernels``, ``convolutions``: what its lines call."""

    def __init__(self, run: FunctionType, kernels: Collection[str], convolutions: Collection[str]) -> None:
        self._run, self._kernels, self._convolutions = run, kernels, convolutions
        self._tapes: dict[Any, _Tape | bool] = {}  # True: the layouts have been seen; False: they cannot be recorded

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        key = tuple([(one.shape, one.stride(), one.dtype) if isinstance(one, torch.Tensor) else one for one in given])
        tape = self._tapes.get(key)
        if tape is True:
            tape = self._tapes[key] = self._recorded(given)
        if isinstance(tape, _Tape):
            return tape(given)
        if tape is None:
            if len(self._tapes) >= _MOST:
                self._tapes.pop([*self._tapes][0], None)
            self._tapes[key] = True
        results: tuple[Any, ...] = self._run(*given)
        return results

    def _recorded(self, given: Sequence[Any]) -> _Tape | bool:
        try:
            return _Tape(record(self._run, self._kernels, self._convolutions, given))
        except Unrecordable:
            return False


class _Tape:
    """A recorded segment, for arguments of the layouts that it was recorded with."""

    def __init__(self, recording: Recording) -> None:
        self._results = recording.results
        returned = {one.buffer: None for one in self._results if isinstance(one, StandIn)}
        made = [buffer for buffer in returned if buffer.given is None]
        used = {word.buffer: None for call in recording.calls for word in call.words if isinstance(word, Address)}
        between = [buffer for buffer in used if buffer.given is None and buffer not in returned]
        offsets, size = planned(_lifetimes(between, recording.calls))
        self._given = [buffer.given for buffer in used if buffer.given is not None]
        self._made = [(buffer.sizes, buffer.strides, buffer.dtype) for buffer in made]
        # Bases: the block, arguments, results.
        bases = {buffer: (0, offset) for buffer, offset in zip(between, offsets, strict=True)}
        others = [*(buffer for buffer in used if buffer.given is not None), *made]
        bases |= {buffer: (1 + number, 0) for number, buffer in enumerate(others)}
        self._number = {buffer: number for number, buffer in enumerate(made)}
        calls: list[int] = []
        words: list[int] = []
        places: list[int] = []
        for call in recording.calls:
            calls += [call.function, len(words)]
            for word in call.words:
                if isinstance(word, Address):
                    base, offset = bases[word.buffer]
                    places += [len(words), base, offset + word.offset]
                words.append(0 if isinstance(word, Address) else word)
        self._code = [call.code for call in recording.calls]
        self._block = _rounded(size + 8 * len(words)) // 4
        self._copy_at = size
        self._kept = [(ctypes.c_int64 * max(len(one), 1))(*one) for one in (calls, words, places)]
        addresses = [ctypes.addressof(one) for one in self._kept]
        self._head = (addresses[0], len(recording.calls), addresses[1], len(words), addresses[2], len(places) // 3)
        self._pack = struct.Struct(f"={_HEAD + 1 + len(others)}q").pack

    def __call__(self, given: Sequence[Any]) -> tuple[Any, ...]:
        block = empty_strided_cpu((self._block,), (1,), torch.float32)
        made = [empty_strided_cpu(*layout) for layout in self._made]
        at = block.data_ptr()
        pointers = [given[i].data_ptr() for i in self._given]
        _replay()(self._pack(*self._head, at + self._copy_at, at, *pointers, *[one.data_ptr() for one in made]))
        return tuple([self._result(one, given, made) for one in self._results])

    def _result(self, one: Any, given: Sequence[Any], made: Sequence[torch.Tensor]) -> Any:
        if not isinstance(one, StandIn):
            return one
        buffer = one.buffer
        tensor = made[self._number[buffer]] if buffer.given is None else given[buffer.given]
        if one.offset == 0 and one.strides == buffer.strides and tuple(one.shape) == buffer.sizes:
            return tensor
        return reinterpret_tensor(tensor, tuple(one.shape), one.strides, one.offset // one.dtype.itemsize)


def _lifetimes(buffers: Sequence[Buffer], calls: Sequence[Call]) -> list[tuple[int, int, int]]:
    """Of each buffer: its bytes, and the numbers of the first and of the last call that know it."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for word in call.words:
            if isinstance(word, Address):
                found[word.buffer] = found.get(word.buffer, (number, number))[0], number
    return [(buffer.bytes, *found[buffer]) for buffer in buffers]


def planned(lifetimes: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Where buffers (bytes, first call, last call) lie in a block, in bytes, and the bytes of the block. Buffers that
    live at the same time do not overlap. The largest comes first, each into the first gap that it fits into."""
    offsets = [0] * len(lifetimes)
    end = 0
    placed: list[int] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i][0], i)):
        size, first, last = lifetimes[i]
        size = -(-size // CPU_CACHE_LINE) * CPU_CACHE_LINE
        at = 0
        others = [j for j in placed if lifetimes[j][1] <= last and first <= lifetimes[j][2]]
        for j in sorted(others, key=offsets.__getitem__):
            if at + size <= offsets[j]:
                break
            at = max(at, offsets[j] + -(-lifetimes[j][0] // CPU_CACHE_LINE) * CPU_CACHE_LINE)
        offsets[i] = at
        placed.append(i)
        end = max(end, at + size)
    return offsets, end


def _rounded(size: int) -> int:
    """Bytes of a block that has room for ``size``."""
    step = max(1 << max(size.bit_length() - 1, 0), _STEPS * CPU_CACHE_LINE) // _STEPS
    return -(-size // step) * step
