"""Estimates register pressure, and shrinks the blocks of variants until a thread's registers suffice.

The estimate per element is a rough upper bound: the maximum number of live values in program order, in 32-bit
registers, plus an address for each load, since the assembler hoists loads to hide latency.

Rows that are held at once need less: the values that are live across a reduction, plus one. With that many registers
the assembler spills at most 32 bytes (as ptxas reports for the kernels of bench/gpu.py). Without a limit it takes more,
and one program fills a processor, which then cannot load one row while it computes another: a layer norm of rows of
9973 points took 310 us on an H200 with 84 registers in each of 512 threads, and 217 us with 128 in each of 256, two of
which fit. Such kernels therefore get a register limit.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

from symshape.analysis.loops import Instr, LoopKernel
from symshape.codegen.variants import Variant
from symshape.dialects.accessors import MIXED
from symshape.dialects.plans import MIXED_SPLIT, SEPARATE, SPLIT
from symshape.machine.targets import GPU_MOST_WARPS, GPU_WARP

_FILE: Final = 65536  # registers of a multiprocessor, and maximum of a block
_REGISTERS: Final = 255  # maximum registers of a thread
_FIXED: Final = 31  # registers of a thread that do not depend on its number of elements
_HELD: Final = ("persistent", "headed")
_WORDS: Final = {"f64": 2, "i64": 2, "i1": 0}
_DIVIDED: Final = 2  # elements per thread with 64-bit index divisions, which are calls that save few registers
_FREE: Final = {
    "tile": ("xblock", "yblock"),
    **dict.fromkeys(("looped", *SPLIT), ("xblock", "rblock")),
    MIXED_SPLIT: ("rblock",),
}
_READS: Final = frozenset({"load", "extract"})


def registers_per_element(kernel: LoopKernel, wide: bool) -> int:
    """Peak registers per element for values that vary between elements. ``wide``: indices have 64 bits."""
    code = [instr for instr in kernel.code if not instr.row or not any(d.reduced for d in kernel.dims)]
    last = {operand: position for position, instr in enumerate(code) for operand in instr.operands}
    live: dict[int, int] = {}
    peak = 0
    for position, instr in enumerate(code):
        if instr.op != "constant":
            live.update((result, _words(instr, wide)) for result in instr.results)
        peak = max(peak, sum(live.values()))
        for value in [value for value in live if last.get(value, position) <= position]:
            del live[value]
    return peak + 2 * sum(instr.op in _READS for instr in code)


def held_words(kernel: LoopKernel, wide: bool) -> int:
    """Registers per element of a row that is held at once."""
    code = kernel.code
    last = {operand: position for position, instr in enumerate(code) for operand in instr.operands}
    made: dict[int, Instr] = {}
    kept = 0
    for position, instr in enumerate(code):
        if instr.op == "reduce":
            across = [one for number, one in made.items() if last.get(number, 0) > position]
            kept = max(kept, sum(_words(one, wide) for one in across))
        elif not instr.row and instr.op != "constant":
            made.update(dict.fromkeys(instr.results, instr))
    return kept + 1 if kept else -(-registers_per_element(kernel, wide) * 2 // 5)


def register_limit(variant: Variant, kernel: LoopKernel) -> int:
    """The limit of registers per thread with which two programs fit on a processor. 0 for no limit: if a row does not
    fit into that many, or if two programs fit anyway."""
    if variant.form not in _HELD or variant.xblock > 1:
        return 0
    needed = _elements(variant) * held_words(kernel, variant.index_bits == 64) + _FIXED
    limit = _FILE // (2 * GPU_WARP * variant.num_warps)
    return limit if needed <= limit < _REGISTERS else 0


def _divides(kernel: LoopKernel) -> bool:
    """Whether several dims must be recovered from the number of each element, which takes divisions."""
    reduced = sum(d.reduced for d in kernel.dims)
    return (reduced or len(kernel.dims)) > 1


def _words(instr: Instr, wide: bool) -> int:
    return 1 + wide if instr.dtype == "index" else _WORDS.get(instr.dtype, 1)


def fit(variant: Variant, kernel: LoopKernel) -> Variant:
    """The variant with smaller blocks, or, at the minimum, more warps, until a thread's registers suffice."""
    if variant.form == SEPARATE:
        return variant
    wide = variant.index_bits == 64
    held = variant.form in (*_HELD, "split_persistent", MIXED) and variant.xblock == 1
    each = held_words(kernel, wide) if held else registers_per_element(kernel, wide)
    each += sum(_words(instr, wide) for instr in kernel.code if instr.op == "across")  # accumulators of columns
    most = _DIVIDED if wide and _divides(kernel) else sys.maxsize
    while (elements := _elements(variant)) > 1 and (elements > most or elements * each > _registers(variant) - _FIXED):
        free = _FREE.get(variant.form, ("xblock",))
        largest = max(free, key=lambda name: getattr(variant, name))
        if getattr(variant, largest) > 1:
            variant = replace(variant, **{largest: getattr(variant, largest) // 2})
        elif variant.num_warps < GPU_MOST_WARPS:
            variant = replace(variant, num_warps=2 * variant.num_warps)
        else:
            break
    return variant


def _elements(variant: Variant) -> int:
    """Number of elements of a thread."""
    if variant.form == MIXED_SPLIT:
        return variant.rblock // (GPU_WARP * variant.num_warps)
    behind = {"tile": variant.yblock, "headed": variant.rblock + variant.yblock}.get(variant.form, variant.rblock)
    return variant.xblock * max(1, behind) // (GPU_WARP * variant.num_warps)


def _registers(variant: Variant) -> int:
    return min(_REGISTERS, _FILE // (GPU_WARP * variant.num_warps))
