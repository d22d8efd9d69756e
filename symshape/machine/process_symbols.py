"""Symbols of this process that object files link to: LLVM's targets, PyTorch's OpenMP library."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from symshape.errors import KernelError
from symshape.machine.object_symbols import kernels_that_need, undefined


def require_symbols(data: bytes) -> None:
    """KernelError, with their names and the kernels', where an object calls functions that are not in the process."""
    initialize()
    missing = [name for name in undefined(data) if not llvm.address_of_symbol(name)]
    if missing:
        kernels = sorted({kernel for name in missing for kernel in kernels_that_need(data, name)})
        raise KernelError(
            f"a CPU kernel calls what is in no library of this process: {', '.join(missing)}",
            where=", ".join(kernels),
            next_step="make the operation a library call",
        )


@cache
def openmp_library() -> str:
    """The path of the OpenMP library that PyTorch uses, so that kernels share its threads. Does not import torch."""
    spec = importlib.util.find_spec("torch")
    root = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    patterns = ("lib/libgomp*.so*", "../torch.libs/libgomp*.so*", "lib/libiomp5.so")  # iomp5 has GOMP's entries too
    found = [path.resolve() for pattern in patterns for path in root.glob(pattern)]
    if not found:
        raise KernelError(
            "PyTorch's OpenMP library is not where it should be",
            where=str(root / "lib"),
            next_step="use a PyTorch wheel, which has its own libgomp",
        )
    return str(found[0])


@cache
def initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently(openmp_library())
    empty_engine().close()  # the first one makes the process itself a library that symbols are looked up in


def empty_engine() -> llvm.ExecutionEngine:
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
