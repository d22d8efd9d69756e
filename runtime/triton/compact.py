"""``nonzero`` of a mask with Triton: count per block, cumulative sum, then each block writes its positions.

Import this module only if triton may be imported (see runtime/triton/launch.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def count_blocks(mask, counts, n, BLOCK: tl.constexpr):
    """Stores to counts[block] the number of the block's elements that are not 0."""
    block = tl.program_id(0).to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK)
    chosen = (tl.load(mask + at, mask=at < n, other=0) != 0).to(tl.int32)
    tl.store(counts + block, tl.sum(chosen, axis=0).to(tl.int64))


@triton.jit
def write_positions(mask, counts, ends, positions, n, BLOCK: tl.constexpr):
    """Writes the positions of each block's nonzero elements in order, after those of the blocks before it."""
    block = tl.program_id(0).to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK)
    chosen = (tl.load(mask + at, mask=at < n, other=0) != 0).to(tl.int32)
    start = tl.load(ends + block) - tl.load(counts + block)
    rank = tl.cumsum(chosen, axis=0) - chosen
    tl.store(positions + start + rank, at, mask=chosen != 0)


def positions(mask: torch.Tensor) -> torch.Tensor:
    """The row-major positions at which a bool tensor is true, in order, as int64. Synchronises with the host once, to
    read their number."""
    mask = mask.contiguous().view(torch.uint8)
    n = mask.numel()
    blocks = triton.cdiv(n, BLOCK)
    if not blocks:
        return torch.empty(0, dtype=torch.int64, device=mask.device)
    with torch.cuda.device_of(mask):  # Triton launches on the current device
        counts = torch.empty(blocks, dtype=torch.int64, device=mask.device)
        count_blocks[(blocks,)](mask, counts, n, BLOCK=BLOCK)
        ends = counts.cumsum(0)
        found = torch.empty(int(ends[-1]), dtype=torch.int64, device=mask.device)
        write_positions[(blocks,)](mask, counts, ends, found, n, BLOCK=BLOCK)
        return found
