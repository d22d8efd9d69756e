"""Programs of tensors on the CPU and on a GPU: a table that tests and bench/gpu.py share.

Where the device is the CPU too, the same programs run, with nothing to transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Make = Callable[[int, int], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Mixed:
    """``run(device, *tensors)``; ``on_device``: which tensors are there, the others are on the CPU."""

    run: Callable[..., Any]
    make: Make
    on_device: tuple[bool, ...] = (True, False)


def number(value: Any, dtype: torch.dtype = torch.float32) -> Make:
    return lambda n, m: [torch.randn(n, m), torch.tensor(value, dtype=dtype)]


def two(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n, m), torch.randn(n, m)]


def positions(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n + 2, m), torch.randint(0, n + 2, (n,))]


def mask(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n, m), torch.randn(n, m) > 0]


MIXED = {
    # A tensor of one element on the CPU is an argument of the kernel.
    "a number": Mixed(lambda d, x, s: x * s + 1, number(2.5)),
    "a number first": Mixed(lambda d, x, s: s - x, number(2.5)),
    "a number of float64": Mixed(lambda d, x, s: x.double() * s, number(1 / 3, torch.float64)),
    "a number of float64 in float32": Mixed(lambda d, x, s: x * s, number(1e-3, torch.float64)),
    "a number of bfloat16": Mixed(lambda d, x, s: x.bfloat16() * s, number(1 / 3, torch.bfloat16)),
    "a number of float16": Mixed(lambda d, x, s: x * s, number(1 / 3, torch.float16)),
    "a large int64": Mixed(lambda d, x, s: x.long() + s, number(2**40 + 1, torch.int64)),
    "a negative int32": Mixed(lambda d, x, s: x.int() * s, number(-7, torch.int32)),
    "a byte": Mixed(lambda d, x, s: x * s, number(200, torch.uint8)),
    "a bool": Mixed(lambda d, x, s: torch.where(s, x, -x), number(True, torch.bool)),
    "an infinity": Mixed(lambda d, x, s: torch.minimum(x, s).exp(), number(torch.inf)),
    "a number in a reduction": Mixed(lambda d, x, s: ((x + s) / s).sum(1) * s, number(2.5)),
    "a fill": Mixed(lambda d, x, s: x.masked_fill(x > 0, s), number(2.5)),
    "a number of a call on the CPU": Mixed(lambda d, x, y: x * y.sum(), two),
    # Transfers in the program.
    "to the GPU": Mixed(lambda d, x, y: x + (y * 2).to(d), two),
    "to the GPU while the host goes on": Mixed(lambda d, x, y: (y * 2).to(d, non_blocking=True) + x, two),
    "to the CPU": Mixed(lambda d, x, y: (x * 2).cpu() + y, two),
    "there and back": Mixed(lambda d, x, y: ((x + 1).cpu() * y).to(d) * 3, two),
    "a number to the GPU": Mixed(lambda d, x, s: (x * s.to(d)).sum(), number(2.5)),
    "results on both": Mixed(lambda d, x, y: (x.relu(), y.relu(), x.shape[0] + torch.zeros(2)), two),
    "written across": Mixed(lambda d, x, y: x.copy_(y * 2) + 1, two),
    # What is made in the program.
    "made on both": Mixed(
        lambda d, x, y: (torch.arange(x.shape[0], device=d) + 1, torch.arange(y.shape[1]) + 1, torch.ones(3, device=d)),
        two,
    ),
    "a constant of the CPU": Mixed(lambda d, x, y: x * torch.tensor(3.0) + torch.tensor([1.0], device=d), two),
    # Indices and masks on the CPU.
    "indices": Mixed(lambda d, x, i: x[i] * 2, positions),
    "written at indices": Mixed(lambda d, x, i: x.index_put((i,), x.new_ones(())) + 1, positions),
    "a mask": Mixed(lambda d, x, m: x[m].relu().sum(), mask),
    "a mask that is taken along": Mixed(lambda d, x, m: torch.where(m.to(d), x, 0.0) * 2, mask),
}
