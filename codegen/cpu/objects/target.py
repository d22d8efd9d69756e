"""`Target`: the properties of a processor that emitters depend on."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

from symshape.machine import instruction_sets as cpu_level


@dataclass(frozen=True)
class Target:
    """``lanes``: elements per vector, the same for every type in a kernel. ``fast_masks``: masked memory operations of
    all widths cost no more than plain ones. ``scalef``: AVX-512's instruction of that name is available (needs 16
    lanes). ``converts_f16``: there are instructions that convert between f16 and f32. ``level``: the instructions that
    LLVM may use, see `symshape/machine/instruction_sets.py`. ``fma``: ``math.fma`` is an instruction, else a call.
    ``gathers``: one instruction that reads an address per lane is faster than a load for each. ``converts_long``: there
    are instructions that convert vectors of 64-bit integers to floats and back. ``permutes``: of so many vectors of
    32-bit elements, one instruction picks elements by indices known at run time."""

    lanes: int
    fast_masks: bool
    scalef: bool
    converts_f16: bool = True
    level: str = cpu_level.NATIVE
    fma: bool = True
    gathers: bool = True
    converts_long: bool = True
    permutes: int = 0


@cache
def target_of(level: str) -> Target:
    """16 lanes with AVX-512 (F, BW, DQ, VL), else 8. Raises OptionError as `cpu_level.check` does."""
    cpu_level.check(level)
    has = cpu_level.host_features() if level == cpu_level.NATIVE else set(cpu_level.features(level))
    wide = has >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    arm = platform.machine().lower() in ("aarch64", "arm64")  # converts without any extension
    of_amd = level == cpu_level.NATIVE and cpu_level.processor(level)[0].startswith("znver")
    return Target(
        16 if wide else 8,
        fast_masks=wide,
        scalef=wide,
        converts_f16=arm or "f16c" in has,
        level=level,
        fma=arm or "fma" in has,
        gathers=not of_amd,
        converts_long=arm or wide,
        permutes=2 if wide else 1 if "avx2" in has else 0,
    )


def default() -> Target:
    """The target of the environment (``SYMSHAPE_CPU``), else the processor that this process runs on."""
    return target_of(cpu_level.from_environment())
