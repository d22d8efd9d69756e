"""What the emitters know of the machine that compiles (kernels are cached per CPU feature set by the caller)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Target:
    """``lanes``: elements per vector, the same for every type in a kernel. ``fast_masks``: masked memory operations
    of all widths cost no more than plain ones. ``scalef``: AVX-512's instruction is there (needs 16 lanes)."""

    lanes: int
    fast_masks: bool
    scalef: bool


@cache
def host() -> Target:
    """The CPU this process runs on: 16 lanes with AVX-512 (F, BW, DQ, VL), else 8."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    wide = all(features.get(name, False) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
    return Target(16, True, True) if wide else Target(8, False, False)
