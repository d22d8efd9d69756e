"""Products of half-type matrices on GPUs whose rows are not aligned, computed on aligned copies where that is faster.

cuBLAS reads 16 bytes at a time where every row begins at a multiple of 16 bytes, and an element at a time elsewhere. A
product in which the leading dimension of an operand or of the result is no multiple of 8 elements is computed on copies
with dims of multiples of 16, and cut out:

    a (m, k), b (k, n)  ->  (a, 0) (m, K) @ (b; 0) (K, N), of which [:, :n]

What is added along k is zeros on both sides, so that an infinity meets none; what is added along m and n is anything,
and is cut off. Sums may be in another order. The decision is arithmetic on the sizes of each call (`PadRule`).
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
# 16 elements: on an RTX 4090 products of dims that are 8 times an odd number are the slowest of all (pytorch#181718).
_MULTIPLE = 16


@dataclass(frozen=True)
class PadRule:
    """Whether copies cost less than an aligned product saves.

    ``gain``     what an unaligned product takes more, as a part of an aligned one's time. 0.35: 2055 x 2055 runs at
                 115.6 TFLOPS on an RTX 4090, 2040 x 2040 at 155.9 (pytorch#181718)
    ``balance``  operations of the GPU in the time of a byte: 312e12 / 1.555e12 for an A100
    ``launch``   operations in the time that a launch takes, 4 us
    """

    gain: float = 0.35
    balance: float = 200.0
    launch: float = 4e-6 * 312e12

    def pays(self, operations: int, size: int, launches: int) -> bool:
        """``operations``: of the product, two for each of its points; ``size``: bytes that copies read and write."""
        return self.gain * operations > self.balance * size + self.launch * launches


# Of Hopper. An unaligned product of 4097 x 4095 x 4097 in bfloat16 runs at 131 TFLOPS on an H200
# (bench/results/gpu_h200_padding.json). 2.5 takes an aligned one to run at 460, less than half of the data sheet's
# 989; a byte of an H100's memory takes the time of 180 such operations.
_HOPPER: Final = PadRule(gain=2.5, balance=180.0, launch=4e-6 * 600e12)
_RULES: Final = {8: PadRule(), 9: _HOPPER}  # by the major number of the compute capability


@functools.cache
def rule_of(device: torch.device) -> PadRule | None:
    """None where products are never padded: of other GPUs nothing is known."""
    major, _ = torch.cuda.get_device_capability(device)
    return _RULES.get(major)


def cuda_products(rule_of: Callable[[torch.device], PadRule | None] = rule_of) -> dict[str, Callable[..., Any]]:
    """What replaces products on a GPU, padded where the device's rule says that it pays: target -> callable."""

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
    """The sizes of a padded product; None where it is computed as it is. ``more``: elements that are copied besides."""
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
    """The dim (0 or 1 of a matrix) whose elements are neighbours in memory, where the other's are not aligned."""
    rows, columns = x.stride()[-2:]
    if columns == 1:
        return 1 if rows % _READ and x.shape[-2] > 1 else None
    if rows == 1:
        return 0 if columns % _READ and x.shape[-1] > 1 else None
    return 1 if x.shape[-1] % _READ else None  # is copied in any case, to rows without gaps


def _up(size: int) -> int:
    return size if size % _READ == 0 else -(-size // _MULTIPLE) * _MULTIPLE


def _padded(a: torch.Tensor, b: torch.Tensor, sizes: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    m, k, n = sizes
    return _copy(a, (m, k), 1), _copy(b, (k, n), 0)


def _copy(x: torch.Tensor, sizes: tuple[int, int], summed: int) -> torch.Tensor:
    """A copy in the corner of a matrix of these sizes, in the order of ``x`` in memory, with zeros along the dim that
    is ``summed`` over; ``x`` where it is aligned and has the sizes."""
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
    """What is added to a product, so that it broadcasts to the padded one."""
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
    """The result's own corner, in memory of its own and contiguous, as a product is."""
    return whole if whole.shape[-2:] == (m, n) else whole[..., :m, :n].clone(memory_format=torch.contiguous_format)
