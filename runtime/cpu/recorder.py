"""Records which machine code a segment of a host program calls, and with which words, by running its lines with
stand-ins for tensors. Nothing is computed, and no memory is allocated."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NoReturn

import torch

from symshape.runtime.cpu.convolution_words import ADDRESSES
from symshape.runtime.cpu.convolutions import is_dense, plan_of
from symshape.runtime.cpu.strided_copy import copy_words, copying


class Unrecordable(Exception):
    """A segment does more, for these arguments, than to call machine code."""


@dataclass(eq=False)
class Buffer:
    """Memory: of the argument number ``given``, or of a result between."""

    bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    given: int | None = None


@dataclass(frozen=True)
class Address:
    buffer: Buffer
    offset: int  # bytes


class StandIn:
    """A tensor without memory."""

    def __init__(
        self, buffer: Buffer, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, offset: int = 0
    ) -> None:
        self.buffer, self.offset, self.dtype = buffer, offset, dtype
        self.shape, self.strides = torch.Size(sizes), tuple(strides)

    def data_ptr(self) -> Address:
        return Address(self.buffer, self.offset)

    def __getattr__(self, name: str) -> NoReturn:
        raise Unrecordable(name)


@dataclass(frozen=True)
class Call:
    """``function``: its address; ``code``: keeps it alive; ``words``: with `Address` where one is."""

    function: int
    code: Any
    words: tuple[int | Address, ...]


@dataclass
class Recording:
    calls: list[Call] = field(default_factory=list)
    results: tuple[Any, ...] = ()  # stand-ins, and sizes

    def empty(self, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> StandIn:
        elements = 0 if 0 in sizes else 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        made = Buffer(elements * dtype.itemsize, tuple(sizes), tuple(strides), dtype)
        return StandIn(made, sizes, strides, dtype)

    def kernel(self, kernel: Any) -> Callable[..., None]:
        """What records a launch, which is Unrecordable for a kernel that is no machine code with words."""

        def launch(*words: Any) -> None:
            if not hasattr(kernel, "address"):
                raise Unrecordable("a kernel without an address")
            if not all(type(word) is Address or (type(word) is int and -(2**63) <= word < 2**63) for word in words):
                raise Unrecordable("a word that is no integer of 64 bits")
            self.calls.append(Call(kernel.address, kernel, words))

        return launch

    def convolution(
        self,
        x: StandIn,
        packed: StandIn,
        bias: StandIn | None,
        scale: StandIn | None,
        operands: Sequence[StandIn],
        channels: int,
        *geometry: Sequence[int] | int | str,
    ) -> StandIn:
        """Records what `convolution` in ``convolutions.py`` would do."""
        shapes = tuple([one.shape for one in operands])
        numbers = [one for given in geometry for one in (given if isinstance(given, list) else [given])]
        plan = plan_of(x.shape, None if scale is None else scale.shape, shapes, channels, *numbers)
        is_plain = is_dense(packed.shape, packed.strides, (1,)) and packed.shape.numel() == plan.weights
        is_plain &= bias is None or (is_dense(bias.shape, bias.strides, (1,)) and bias.shape == (channels,))
        is_plain &= scale is None or is_dense(scale.shape, scale.strides, (scale.shape[1], 1, 1, 1))
        types = {one.dtype for one in (x, packed, bias, scale, *operands) if one is not None}
        if not is_plain or types != {torch.float32}:
            raise Unrecordable("operands that are copied, or rejected")
        x = self._with_strides(x, plan.in_strides)
        operands = [self._with_strides(*pair) for pair in zip(operands, plan.operand_strides, strict=True)]
        result = self.empty(plan.shape, plan.strides, torch.float32)
        if not plan.is_empty:
            addresses = [one.data_ptr() for one in operands]
            added = 0 if plan.added is None else addresses[plan.added]
            tensors = (0 if one is None else one.data_ptr() for one in (x, packed, bias, scale))
            heads = (*tensors, added, result.data_ptr(), *addresses)
            filled = (*heads, *(0,) * (len(ADDRESSES) - len(heads)))
            self.calls.append(
                Call(plan.address, plan.call, (*filled, *struct.unpack(f"={len(plan.words) // 8}q", plan.words)))
            )
        return result

    def _with_strides(self, x: StandIn, strides: tuple[int, ...]) -> StandIn:
        """The tensor, or one of these strides that it is copied to first."""
        if is_dense(x.shape, x.strides, strides):
            return x
        made = self.empty(x.shape, strides, x.dtype)
        if made.buffer.bytes:
            address, code = copying()
            words = copy_words(x.shape, x.strides, strides)
            self.calls.append(Call(address, code, (x.data_ptr(), made.data_ptr(), *words)))
        return made


def _reinterpreted(x: StandIn, sizes: Sequence[int], strides: Sequence[int], offset: int) -> StandIn:
    return StandIn(x.buffer, sizes, strides, x.dtype, x.offset + offset * x.dtype.itemsize)


def record(
    function: FunctionType, kernels: Collection[str], convolutions: Collection[str], given: Sequence[Any]
) -> Recording:
    """Runs a function of a host program for arguments like ``given``, tensors and numbers. ``kernels``,
    ``convolutions``: names among its globals. Unrecordable where it does anything else."""
    recording = Recording()
    own = {
        **function.__globals__,
        "empty_strided": recording.empty,
        "reinterpret": _reinterpreted,
        **{name: recording.kernel(function.__globals__[name]) for name in kernels},
        **dict.fromkeys(convolutions, recording.convolution),
    }
    recording.results = FunctionType(function.__code__, own)(*_stand_ins(given))
    return recording


def _stand_ins(given: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for number, one in enumerate(given):
        if isinstance(one, torch.Tensor):
            sizes, strides = tuple(one.shape), one.stride()
            found.append(StandIn(Buffer(0, sizes, strides, one.dtype, number), sizes, strides, one.dtype))
        else:
            found.append(one)
    return found
