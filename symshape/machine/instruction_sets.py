"""The instruction sets that generated CPU code may use.

The levels are those of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI), which LLVM and GCC know by the same
names. Code for a level runs on every processor that supports it.
"""

from __future__ import annotations

import platform
from typing import Final

from symshape import knobs
from symshape.errors import OptionError

NATIVE: Final = "native"
# What each level adds to the one before it, by LLVM's names.
_ADDS: Final = {
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
LEVELS: Final = tuple(_ADDS)
CPUS: Final = (NATIVE, *LEVELS)


def from_environment() -> str:
    """The value of ``SYMSHAPE_CPU``, unchecked; "native" if it is not set."""
    return knobs.CPU.read()


def features(level: str) -> tuple[str, ...]:
    """All features of a level, by LLVM's names."""
    return tuple(name for one in LEVELS[: LEVELS.index(level) + 1] for name in _ADDS[one])


def check(level: str) -> None:
    """OptionError where there is no such level, or this processor is below it: its code would crash here."""
    if level == NATIVE:
        return
    if level not in LEVELS:
        raise OptionError(
            f"unknown cpu {level!r}", next_step=f"cpus: {', '.join(CPUS)} (option cpu, or {knobs.CPU.name})"
        )
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise OptionError(
            f"cpu {level!r} is a level of x86-64, and this is {platform.machine()}", next_step=f"use {NATIVE!r}"
        )
    missing = sorted(set(features(level)) - host_features())
    if missing:
        raise OptionError(
            f"cpu {level!r}: this processor has no {', '.join(missing)}",
            next_step=f"use one of {', '.join((NATIVE, *held()))}",
        )


def held() -> tuple[str, ...]:
    """The levels that this processor has."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ()
    return tuple(level for level in LEVELS if set(features(level)) <= host_features())


def host_features() -> set[str]:
    """The features of this processor, by LLVM's names."""
    import llvmlite.binding as llvm

    return {name for name, has in llvm.get_host_cpu_features().items() if has}


def processor(level: str) -> tuple[str, str]:
    """LLVM's name of the processor that code is generated for, and its features, such as "+avx2,-avx512f"."""
    import llvmlite.binding as llvm

    check(level)
    if level == NATIVE:
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return level, ",".join(f"+{name}" for name in features(level))
