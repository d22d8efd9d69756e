"""Undefined symbols of an object file of CPU kernels, read from its ELF tables (System V ABI, 64 bits).

LLVM does not report an undefined function when it loads code: a call of it would jump to address 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from symshape.errors import KernelError

_HEADER = struct.Struct("<6s34xQ10xHH2x")  # magic, class, encoding; section headers: offset, size of one, how many
_SECTION = struct.Struct("<4xI16xQQII16x")  # type, offset, size, linked section, section that it is about
_SYMBOL = struct.Struct("<IBxHQQ")  # name, binding and type, section, value, size
_RELOCATION = struct.Struct("<Q4xIq")  # offset, symbol, addend
_SYMTAB, _RELA = 2, 4
_GLOBAL, _FUNCTION = 1, 2
_WRAPPER = "_mlir_"  # begins the names of what the execution engine makes around every function

_Section = tuple[int, int, int, int, int]
_Symbol = tuple[str, int, int, int, int]  # name, binding and type, section, value, size


def undefined(data: bytes) -> list[str]:
    """Names of the functions that an object calls and does not define. KernelError if it is no object file."""
    return [name for name, info, section, _, _ in _symbols(data) if name and not section and info >> 4 == _GLOBAL]


def kernels_that_need(data: bytes, symbol: str) -> list[str]:
    """The public functions that reach a symbol through calls, or through addresses that they take, by name.
    It reads all relocations: for messages."""
    needs, found = _references(data), {symbol}
    while more := {one for one, other in needs if other in found} - found:
        found |= more
    public = {name for name, info, section, _, _ in _symbols(data) if section and info >> 4 == _GLOBAL}
    return sorted(name for name in found & public if not name.startswith(_WRAPPER))


def _references(data: bytes) -> set[tuple[str, str]]:
    """(function, referenced symbol) by name; local functions are referenced by their offset in a section."""
    symbols, found = list(_symbols(data)), set()
    for kind, start, size, _, code in _sections(data):
        if kind != _RELA:
            continue
        for offset, number, addend in _RELOCATION.iter_unpack(data[start : start + size]):
            name, _, section, value, _ = symbols[number]
            found.add((_function_at(symbols, code, offset), name or _function_at(symbols, section, value + addend)))
    return {(one, other) for one, other in found if one and other}  # data is no function


def _function_at(symbols: list[_Symbol], section: int, offset: int) -> str:
    return next(
        (
            name
            for name, info, where, value, size in symbols
            if info & 15 == _FUNCTION and where == section and value <= offset < value + size
        ),
        "",
    )


def _symbols(data: bytes) -> Iterator[_Symbol]:
    sections = _sections(data)
    for kind, start, size, link, _ in sections:
        if kind == _SYMTAB:
            names = sections[link][1]
            for name, *rest in _SYMBOL.iter_unpack(data[start : start + size]):
                begin = names + name
                yield data[begin : data.index(b"\0", begin)].decode(), *rest


def _sections(data: bytes) -> list[_Section]:
    try:
        magic, start, size, count = _HEADER.unpack_from(data)
        if magic == b"\x7fELF\2\1" and size == _SECTION.size:
            return [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    except struct.error:
        pass
    raise KernelError("this is no ELF object of 64 bits, little endian", next_step="clear the kernel cache")
