"""Memory of large tensors, kept from call to call.

The C library gives a large block back to the system as soon as it is freed, and the next call gets pages that the
system has to clear first: a quarter of a microsecond for each KiB, more than most kernels work on it. So blocks of
programs stay here, each as long as a tensor uses it and after that, up to a bound. A block serves tensors of its very
size: what a storage's ``nbytes`` says, and what is saved of it in a file, is as without.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Final

import torch

from symshape.knobs import KEPT_MEMORY
from symshape.runtime import torch_c

_LEAST: Final = 1 << 20  # elements; the C library keeps smaller blocks by itself

# Bytes. glibc keeps blocks up to the size of the largest that was freed, if that is no larger than this, and PyTorch's
# operators profit from that as well. Our blocks stay, so one is freed in their place.
_LARGEST_OF_HEAP: Final = (32 << 20) - (64 << 10)

_Kind = tuple[int, torch.dtype, bool]  # elements, type, whether it is a tensor of inference mode


class _Block:
    """``memory``: a tensor of one dim, of which those that are given out are views that nothing else knows of."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.memory = torch_c.empty_strided_cpu((kind[0],), (1,), kind[1])
        self.bytes = self.memory.nbytes
        self._storage = self.memory.untyped_storage()
        self._idle = self._users()

    def _users(self) -> tuple[int, int]:
        """How many tensors, and how many Python objects, know the storage, of which Python has one object."""
        return torch_c.storage_uses(self._storage), sys.getrefcount(self._storage)

    @property
    def is_free(self) -> bool:
        return self._users() == self._idle

    @property
    def is_as_made(self) -> bool:
        """Whether nobody has moved the memory to where other processes see it, or has resized it."""
        return not self._storage.is_shared() and self._storage.nbytes() == self.bytes


class KeptMemory:
    """Blocks, those that were used last at the end."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._bytes = 0
        self._lock = threading.Lock()

    def empty(self, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor without values, in a block that nobody uses, or in a new one."""
        # The lock is busy in another thread, or below: the garbage collector may run a program.
        if 0 in sizes or not self._lock.acquire(blocking=False):
            return torch_c.empty_strided_cpu(sizes, strides, dtype)
        try:
            elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
            kind = (elements, dtype, torch.is_inference_mode_enabled())
            block = self._taken(kind) or self._made(kind)
            return torch_c.reinterpret_tensor(block.memory, sizes, strides, 0)
        finally:
            self._lock.release()

    def _taken(self, kind: _Kind) -> _Block | None:
        for i in reversed(range(len(self._blocks))):
            block = self._blocks[i]
            if block.kind == kind and block.is_free:
                del self._blocks[i]
                if block.is_as_made:
                    self._blocks.append(block)
                    return block
                self._bytes -= block.bytes
        return None

    def _made(self, kind: _Kind) -> _Block:
        """A new block. Blocks that were not used for longest are forgotten: what uses one keeps its memory."""
        block, bound = _Block(kind), KEPT_MEMORY.read() << 20
        if block.bytes <= bound:
            if not self._blocks:
                torch_c.empty_strided_cpu((_LARGEST_OF_HEAP,), (1,), torch.uint8)
            while self._bytes + block.bytes > bound:
                self._bytes -= self._blocks.pop(0).bytes
            self._blocks.append(block)
            self._bytes += block.bytes
        return block


_kept = KeptMemory()


def empty_strided_cpu(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor without values. Of large ones, whose first dim is the outermost, the memory is kept."""
    if not sizes or sizes[0] * strides[0] < _LEAST:
        return torch_c.empty_strided_cpu(sizes, strides, dtype)
    return _kept.empty(sizes, strides, dtype)
