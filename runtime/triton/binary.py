"""Compiles one launch to machine code with Triton, for this machine's GPU or any other."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import Any, Final

import torch

from symshape.artifact.triton_kernels import TritonKernel, TritonStage, TritonVariant

# The attribute of arguments that are multiples of 16; without it Triton does not vectorise accesses.
_ALIGNED: Final = [["tt.divisibility", 16]]
_ALLOCATED: Final = "workspace"  # PyTorch's allocations are aligned
_LANES: Final = 32  # threads of a warp
_KEYS: Final = ("triton.runtime.cache", "triton.compiler.compiler")  # modules that have triton_key, by Triton's version


def compile_stage(
    kernel: TritonKernel, variant: TritonVariant, stage: TritonStage, function: Any, target: Any = None
) -> Any:
    """Triton's compiled kernel for a GPUTarget (default: the current GPU). Triton caches it on disk."""
    import triton
    from triton.compiler import ASTSource

    hash_of_triton().join()
    target = current_target() if target is None else target
    source = ASTSource(fn=function, **signature(kernel, variant, stage))
    options: dict[str, Any] = {"num_warps": stage.num_warps, "enable_fp_fusion": True}
    if stage.registers:
        options["maxnreg"] = stage.registers
    return triton.compile(source, target=target, options=options)


def current_target() -> Any:
    """The GPUTarget of the current GPU; None on ROCm, where only Triton's driver knows it. Elsewhere that
    driver is not asked: it compiles C code at its first use, which direct_launch does not need."""
    from triton.backends.compiler import GPUTarget

    if torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability()
    return GPUTarget("cuda", 10 * major + minor, _LANES)


@functools.cache
def hash_of_triton() -> threading.Thread:
    """Starts a thread that computes the hash of Triton's files, a part of every key of its cache. That takes half a
    second once per process, mostly without the GIL; started along with a compile, it ends before the first kernel needs
    it.
    """
    import triton.compiler  # imported here: two threads importing it at once could see it half initialised

    del triton
    thread = threading.Thread(target=_hash_of_triton, name="symshape-hash-of-triton", daemon=True)
    thread.start()
    return thread


def _hash_of_triton() -> None:
    with contextlib.suppress(Exception):  # the compile computes it again and reports the error
        for name in _KEYS:
            if key := getattr(importlib.import_module(name), "triton_key", None):
                key()  # cached by functools.lru_cache
                return


def signature(kernel: TritonKernel, variant: TritonVariant, stage: TritonStage) -> dict[str, Any]:
    """Keyword arguments of ASTSource: types of arguments, values of constexprs, arguments that are multiples of 16."""
    import triton.language as tl

    arguments = kernel.arguments(stage.function)
    types = {name: f"i{variant.index_bits}" if type_ == "int" else type_ for name, type_ in arguments}
    constants: dict[str, object] = {"INDEX": getattr(tl, variant.index_dtype), **dict(stage.constants)}
    attrs = {(i,): _ALIGNED for i, name in enumerate(types) if _divides(name, variant)}
    types.update((name, "constexpr") for name in constants)
    return {"signature": types, "constexprs": constants, "attrs": attrs}


def _divides(name: str, variant: TritonVariant) -> bool:
    return name in variant.aligned or name.startswith(_ALLOCATED)
