"""Counters of programs that share rows (codegen/triton/split.py): 32-bit integers that are zero between launches.

Launches of a stream run one after the other, and each leaves its counters at zero: they share those of the stream.
"""

from __future__ import annotations

from typing import Final

import torch

from symshape.runtime.torch_c import current_gpu, raw_stream

_LEAST: Final = 1024
_KEPT: Final[dict[tuple[int, int], torch.Tensor]] = {}  # by GPU and handle of the stream


def zero_counters(count: int, device: torch.device) -> torch.Tensor:
    """At least ``count`` counters for launches on the current stream of ``device``.

    A CUDA graph that is being captured gets its own, and sets them to zero in each replay: it may be replayed on
    another stream, beside launches on this one. So does an interpreted launch, which may be left in the middle.
    """
    if device.type != "cuda":
        return torch.zeros(count, dtype=torch.int32, device=device)
    if device.index != current_gpu():
        with torch.cuda.device(device):
            return zero_counters(count, device)
    if torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=device)
    key = device.index, raw_stream(device.index)
    kept = _KEPT.get(key)
    if kept is None or kept.numel() < count:
        size = max(_LEAST, 1 << (count - 1).bit_length())
        kept = _KEPT[key] = torch.zeros(size, dtype=torch.int32, device=device)
    return kept
