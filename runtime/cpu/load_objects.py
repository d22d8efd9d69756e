"""Loads object files of CPU kernels into the process. Needs llvmlite, not MLIR."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from symshape.errors import KernelError
from symshape.machine.process_symbols import empty_engine, require_symbols

_lock = threading.RLock()  # LLVM's execution engines are built and freed by one thread at a time


class Library:
    """One loaded object file; its machine code lives as long as this object or any function of it."""

    def __init__(self, data: bytes) -> None:
        with _lock:
            require_symbols(data)
            self._engine = empty_engine()
            self._object = llvm.ObjectFileRef.from_data(data)
            self._engine.add_object_file(self._object)
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Of a function."""
        with _lock:
            address: int = self._engine.get_function_address(name)
        if not address:
            raise KernelError(f"the object file has no kernel {name!r}", next_step="clear the kernel cache")
        return address

    def function_of_bytes(self, name: str) -> Callable[[bytes], None]:
        """The C function ``void name(int64 *)`` as a callable that takes the int64s as bytes."""
        call: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self.address(name))
        call.library = self  # keeps the code alive
        function: Callable[[bytes], None] = call
        return function

    def function(self, name: str, arguments: int) -> Callable[..., None]:
        """The C function ``void name(int64 *)`` as a callable that takes the int64s one by one; it releases the GIL
        while it runs. Its attribute ``address`` is the C function's. OverflowError of the callable for an int of more
        than 64 bits."""
        call = self.function_of_bytes(name)
        pack = struct.Struct(f"={arguments}q").pack

        def function(*values: int) -> None:
            try:
                words = pack(*values)
            except struct.error:
                raise _overflow(values) from None
            call(words)  # one argument: ctypes converts each by itself, ten times slower

        function.address = self.address(name)  # type: ignore[attr-defined]
        return function

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and _lock is not None:  # None: the process ends, and modules are empty already
            with _lock:
                engine.close()


def _overflow(values: Sequence[int]) -> OverflowError:
    """The OverflowError for a size argument that does not fit into 64 bits, nor into any tensor's size."""
    number = next(value for value in values if not -(2**63) <= value < 2**63)
    return OverflowError(f"{number} is a number of more than 64 bits")


def load_object(data: bytes, arguments: Mapping[str, int]) -> dict[str, Callable[..., None]]:
    """The kernels of an object file: name -> callable(*ints). ``arguments``: the number of each one's arguments."""
    library = Library(data)
    return {name: library.function(name, count) for name, count in arguments.items()}
