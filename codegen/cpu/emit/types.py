"""Element types: the representation of each dtype in registers and in memory, and its constants."""

from __future__ import annotations

import struct

from symshape.artifact.element_types import ITEM_SIZE
from symshape.errors import KernelError

_REGISTER = {"index": "i64", "bf16": "i16"}  # bf16 as its bits: no CPU instruction is relied on
_FLOAT_FORMAT = {"f64": (">d", 16), "f32": (">f", 8), "f16": (">e", 4)}
GATHERED = frozenset({"f32", "f64", "i32", "i64"})  # x86 gathers and scatters no smaller elements


def register(dtype: str) -> str:
    """The scalar MLIR type that holds a value of the dtype ("ui8" -> "i8", "bf16" -> "i16")."""
    return _REGISTER.get(dtype) or (dtype[1:] if dtype.startswith(("ui", "si")) else dtype)


def memory(dtype: str) -> str:
    """The scalar MLIR type of an element in memory (bool is one byte)."""
    return "i8" if dtype == "i1" else register(dtype)


def size(dtype: str) -> int:
    """Bytes of an element in memory."""
    found = ITEM_SIZE.get(memory(dtype))
    if found is None:
        hint = "make the operation a library call"
        raise KernelError(f"CPU kernels have no elements of type {dtype}", next_step=hint)
    return found


def is_float(dtype: str) -> bool:
    """Whether the dtype is floating point."""
    return dtype.startswith(("f", "bf"))


def bits(dtype: str) -> int:
    """The width of an integer dtype."""
    return int(register(dtype)[1:])


def literal(value: float | int | bool, type_: str) -> str:
    """A constant of a register type, as the text of an attribute; floats as their bits, so that none is rounded.

    Never cached: -0.0 and 0.0 are the same key.
    """
    if type_ in _FLOAT_FORMAT:
        code, digits = _FLOAT_FORMAT[type_]
        try:
            data = struct.pack(code, value)
        except OverflowError:
            data = struct.pack(code, float("inf") if value > 0 else float("-inf"))
        return f"0x{int.from_bytes(data, 'big'):0{digits}X}"
    if type_ == "i1":
        return "true" if value else "false"
    width = int(type_[1:])
    wrapped = int(value) & ((1 << width) - 1)
    return str(wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)


def bfloat_bits(value: float) -> int:
    """The bits of a float rounded to bf16 (nearest even)."""
    if value != value:
        return 0x7FC0
    try:
        word = struct.unpack(">I", struct.pack(">f", value))[0]
    except OverflowError:
        word = 0x7F800000 if value > 0 else 0xFF800000
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16


def bfloat_value(bits: int) -> float:
    """The number that these bits represent in bf16."""
    found: float = struct.unpack(">f", struct.pack(">I", bits << 16))[0]
    return found
