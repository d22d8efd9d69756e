"""Pads matrix products of half types with unaligned rows on GPUs, if that is faster.

cuBLAS reads 16 bytes at a time if every row begins at a multiple of 16 bytes, else one element at a time. A product in
which the leading dimension of an operand or of the result is no multiple of 8 elements is computed on copies padded to
multiples of 16, and cropped:

    a (m, k), b (k, n)  ->  (a, 0) (m, K) @ (b; 0) (K, N), of which [:, :n]

The padding along k is zero in both operands, so that no infinity is multiplied by zero. Padding along m and n is
uninitialised, and cropped. The order of summation may change. The decision is arithmetic on each call's sizes
(`PadRule`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

Sizes = tuple[int, int, int]  # m, k, n
_HALF = (torch.float16, torch.bfloat16)
_READ = 8  # elements in 16 bytes
# Multiples of 16, not 8: on an RTX 4090 products with dims of 8 times an odd number are slowest (pytorch#181718).
_MULTIPLE = 16


@dataclass(frozen=True)
class PadRule:
    """Decides whether copies cost less than an aligned product saves.

    ``gain``     extra time of an unaligned product, relative to an aligned one. 0.35: on an RTX 4090 2055 x 2055 runs
                 at 115.6 TFLOPS, 2040 x 2040 at 155.9 (pytorch#181718)
    ``balance``  operations that take as long as moving one byte: 312e12 / 1.555e12 on an A100
    ``launch``   operations that take as long as a launch, 4 us
    """

    gain: float = 0.35
    balance: float = 200.0
    launch: float = 4e-6 * 312e12

    def pays(self, operations: int, size: int, launches: int) -> bool:
        """``operations``: of the product, 2*m*k*n per matrix; ``size``: bytes that copies read and write."""
        return self.gain * operations > self.balance * size + self.launch * launches


# For Hopper. An unaligned product of 4097 x 4095 x 4097 in bfloat16 runs at 131 TFLOPS on an H200
# (bench/results/gpu_h200_padding.json). A gain of 2.5 assumes 460 for an aligned one, less than half of the data
# sheet's 989. Moving a byte in an H100's memory takes as long as 180 such operations.
_HOPPER: Final = PadRule(gain=2.5, balance=180.0, launch=4e-6 * 600e12)
_RULES: Final = {8: PadRule(), 9: _HOPPER}  # by major compute capability


@functools.cache
def rule_of(device: torch.device) -> PadRule | None:
    """The rule for a GPU; None if products are never padded, since there is no measurement for it."""
    major, _ = torch.cuda.get_device_capability(device)
    return _RULES.get(major)


def cuda_products(rule_of: Callable[[torch.device], PadRule | None] = rule_of) -> dict[str, Callable[..., Any]]:
    """Replacements for products on a GPU, by target; they pad if the device's rule says so."""

    def sizes_of(a: torch.Tensor, b: torch.Tensor, more: int = 0) -> Sizes | None:
        rule = rule_of(a.device) if a.dtype in _HALF else None
        return None if rule is None else padded_sizes(a, b, rule, more)

    def plain(of: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            sizes = sizes_of(a, b)
            return of(a, b) if sizes is None else _cut(of(*_padded(a, b, sizes)), a.shape[-2], b.shape[-1])

        return product

    def added(of: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def product(
            c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
        ) -> torch.Tensor:
            sizes = sizes_of(a, b, c.numel()) if c.dtype == a.dtype else None
            if sizes is None:
                return of(c, a, b, beta=beta, alpha=alpha)
            m, n = a.shape[-2], b.shape[-1]
            whole = of(_like_result(c, m, n, sizes), *_padded(a, b, sizes), beta=beta, alpha=alpha)
            return _cut(whole, m, n)

        return product

    return {
        "aten.mm.default": plain(torch.mm),
        "aten.bmm.default": plain(torch.bmm),
        "aten.addmm.default": added(torch.addmm),
        "aten.baddbmm.default": added(torch.baddbmm),
    }


def padded_sizes(a: torch.Tensor, b: torch.Tensor, rule: PadRule, more: int = 0) -> Sizes | None:
    """The sizes of the padded product; None if it is not padded. ``more``: number of further elements to copy."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[0] if a.dim() == 3 else 1
    operations = 2 * batch * m * k * n
    if not rule.pays(operations, 0, 0):
        return None
    along_a, along_b = _unaligned_dim(a), _unaligned_dim(b)
    padded = (_up(m) if along_a == 0 else m, _up(k) if along_a == 1 or along_b == 0 else k, _up(n))
    copied = [
        (along_a is not None or padded[:2] != (m, k), m * k),
        (along_b is not None or padded[1:] != (k, n), k * n),
    ]
    cut = padded[0] != m or padded[2] != n
    if not any(yes for yes, _ in copied):
        return None
    elements = batch * (sum(size for yes, size in copied if yes) + cut * m * n) + cut * more
    launches = 2 * sum(yes for yes, _ in copied) + cut * (1 + (more > 0))
    return padded if rule.pays(operations, 2 * elements * a.itemsize, launches) else None


def _unaligned_dim(x: torch.Tensor) -> int | None:
    """The contiguous dim of a matrix (0 or 1) if the other dim's stride is unaligned; else None."""
    rows, columns = x.stride()[-2:]
    if columns == 1:
        return 1 if rows % _READ and x.shape[-2] > 1 else None
    if rows == 1:
        return 0 if columns % _READ and x.shape[-1] > 1 else None
    return 1 if x.shape[-1] % _READ else None  # the product copies it anyway, to contiguous rows


def _up(size: int) -> int:
    return size if size % _READ == 0 else -(-size // _MULTIPLE) * _MULTIPLE


def _padded(a: torch.Tensor, b: torch.Tensor, sizes: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    m, k, n = sizes
    return _copy(a, (m, k), 1), _copy(b, (k, n), 0)


def _copy(x: torch.Tensor, sizes: tuple[int, int], summed: int) -> torch.Tensor:
    """A copy of ``x`` padded to ``sizes``, in the same memory order, with zeros in the padding along the dim
    ``summed``. ``x`` itself if it is aligned and has these sizes."""
    rows, columns = x.shape[-2:]
    if (rows, columns) == sizes and _unaligned_dim(x) is None:
        return x
    transposed = x.stride(-2) == 1 and x.stride(-1) != 1
    shape = (*x.shape[:-2], *(sizes[::-1] if transposed else sizes))
    made = x.new_empty(shape)
    made = made.transpose(-2, -1) if transposed else made
    made[..., :rows, :columns] = x
    start = x.shape[summed - 2]
    made.narrow(summed - 2, start, sizes[summed] - start).zero_()
    return made


def _like_result(c: torch.Tensor, m: int, n: int, sizes: Sizes) -> torch.Tensor:
    """The summand ``c``, padded so that it broadcasts to the padded product."""
    rows, _, columns = sizes
    shape = list(c.shape)
    if c.dim() > 1 and shape[-2] == m != 1:
        shape[-2] = rows
    if c.dim() and shape[-1] == n != 1:
        shape[-1] = columns
    if shape == list(c.shape):
        return c
    made = c.new_empty(shape)
    made[tuple(slice(size) for size in c.shape)] = c
    return made


def _cut(whole: torch.Tensor, m: int, n: int) -> torch.Tensor:
    """The result without padding, copied to contiguous memory as an unpadded product would be."""
    return whole if whole.shape[-2:] == (m, n) else whole[..., :m, :n].clone(memory_format=torch.contiguous_format)
