"""Importing this changes what compiled programs allocate on CPUs: it is filled with bytes 255, NaN and -1, so that what
no kernel writes shows whatever was in that memory before, and lies at a page that cannot be accessed, so that the first
element behind it, or by chance before it, that a kernel reads or writes ends the process."""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import Any

import torch
import torch.utils._pytree as pytree

import symshape.runtime.cpu.attention
import symshape.runtime.cpu.convolutions
import symshape.runtime.program

_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0
_allocate = symshape.runtime.program.empty_strided_cpu
_protect = ctypes.CDLL(None, use_errno=True).mprotect
_protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


_pick = random.Random(0)


def at_a_guard_page(size: int) -> torch.Tensor:
    """Bytes of 255, at least one, that end (but for alignment to 16) where a page begins that cannot be accessed, or by
    chance begin where one ends."""
    taken = -size % 16 + size
    pages = -(-taken // _PAGE) * _PAGE
    memory = mmap.mmap(-1, pages + 2 * _PAGE)
    memory[_PAGE : _PAGE + pages] = b"\xff" * pages
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (address, address + _PAGE + pages):
        if _protect(page, _PAGE, _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = _PAGE + (0 if _pick.random() < 0.5 else pages - taken)
    return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=first)


def guarded(tree: Any) -> Any:
    """A pytree with its plain tensors copied, each storage to memory at a guard page; tensors that share
    memory share it."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(x: Any) -> Any:
        is_plain = type(x) is torch.Tensor and x.layout == torch.strided and x.device.type == "cpu"
        if not is_plain or not x.is_leaf or x.is_conj() or x.is_neg():
            return x
        old = x.untyped_storage()
        if not old.nbytes():
            return x
        if old.data_ptr() not in storages:
            storages[old.data_ptr()] = at_a_guard_page(old.nbytes()).untyped_storage()
            storages[old.data_ptr()].copy_(old)
        made = torch.empty(0, dtype=x.dtype)
        made.set_(storages[old.data_ptr()], x.storage_offset(), x.shape, x.stride())
        return made.requires_grad_(x.requires_grad)

    return pytree.tree_map(copy, tree)


def _poisoned(sizes: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
    size = _allocate(sizes, strides, dtype).untyped_storage().nbytes()
    if not size:
        return _allocate(sizes, strides, dtype)
    return torch.empty(0, dtype=dtype).set_(at_a_guard_page(size).untyped_storage(), 0, sizes, strides)


_runtime = symshape.runtime
for _module in (_runtime.program, _runtime.cpu.attention, _runtime.cpu.convolutions):
    _module.empty_strided_cpu = _poisoned
