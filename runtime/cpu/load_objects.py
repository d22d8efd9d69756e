"""Loads object files of CPU kernels into the process. Needs llvmlite, not MLIR."""

from __future__ import annotations

import ctypes
import importlib.util
import struct
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from symshape.errors import KernelError
from symshape.runtime.cpu.object_symbols import kernels_that_need, undefined

_lock = threading.RLock()  # LLVM's execution engines are built and freed by one thread at a time


class Library:
    """One loaded object file; its machine code lives as long as this or any function of it."""

    def __init__(self, data: bytes) -> None:
        with _lock:
            require_symbols(data)
            self._engine = _empty_engine()
            self._object = llvm.ObjectFileRef.from_data(data)
            self._engine.add_object_file(self._object)
            self._engine.finalize_object()
        _loaded.add(self)

    def function(self, name: str, arguments: int) -> Callable[..., None]:
        """The C function ``void name(int64 *)`` as a callable that takes the int64s one by one; it releases the GIL
        while it runs."""
        with _lock:
            address = self._engine.get_function_address(name)
        if not address:
            raise KernelError(f"the object file has no kernel {name!r}", next_step="clear the kernel cache")
        call: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
        call.library = self  # keeps the code alive
        pack = struct.Struct(f"={arguments}q").pack

        def function(*values: int) -> None:
            call(pack(*values))  # one argument: ctypes converts each by itself, ten times slower

        return function

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and _lock is not None:  # None: the process ends, and modules are empty already
            with _lock:
                engine.close()


_loaded: weakref.WeakSet[Library] = weakref.WeakSet()


def loaded_libraries() -> int:
    """How many object files are in the process: each leaves with the last program that calls it."""
    return len(_loaded)


def load_object(data: bytes, arguments: Mapping[str, int]) -> dict[str, Callable[..., None]]:
    """The kernels of an object file: name -> callable(*ints). ``arguments``: the number of each one's arguments."""
    library = Library(data)
    return {name: library.function(name, count) for name, count in arguments.items()}


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
    _empty_engine().close()  # the first one makes the process itself a library that symbols are looked up in


def _empty_engine() -> llvm.ExecutionEngine:
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
