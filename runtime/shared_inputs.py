"""Inputs that share memory at a later call only, where one of them is written to.

AOTAutograd traces inputs as they are at the first call. If those share no memory it makes no guard, and the graph reads
its inputs before it writes to any. For inputs that overlap later it runs one operator after the other, as eager mode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.runtime.entries import apart
from symshape.runtime.torch_c import overlap

log = logging.getLogger("symshape.frames")


def in_eager_mode_if_shared(
    run: Callable[..., Any], eager: Callable[..., Any], tensors: Sequence[int], changed: Sequence[int]
) -> Callable[..., Any]:
    """``run``, just compiled from ``eager``, a graph that got no bases; for inputs of which a written one overlaps
    another, ``eager``. ``tensors``: positions of the arguments that are dense tensors; ``changed``: of those that are
    written to."""
    written = [i for i in changed if i in tensors]
    others = [i for i in tensors if i not in written]
    if not written or len(tensors) < 2:
        return run
    both = [*written, *others]

    def call(*args: Any) -> Any:
        memory = {args[i].untyped_storage().data_ptr() for i in both}
        if len(memory) == len(both) or not _are_shared([args[i] for i in written], [args[i] for i in others]):
            return run(*args)
        log.info("inputs share memory that is written to, unlike at the first call: the graph runs in eager mode")
        return eager(*args)

    return call


def _are_shared(changed: Sequence[torch.Tensor], read: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor that is written to overlaps another one. False is exact."""
    if apart(changed, read):
        return False
    written = {id(one) for one in changed}
    before: list[tuple[int, torch.Tensor]] = []  # ends and tensors: those that may reach into the next one
    for start, end, one in sorted(map(_range, (*changed, *read)), key=lambda row: row[:2]):
        before = [row for row in before if row[0] > start]
        if any(overlap(one, other) for _, other in before if written & {id(one), id(other)}):
            return True
        before.append((end, one))
    return False


def _range(x: torch.Tensor) -> tuple[int, int, torch.Tensor]:
    """The addresses between which the elements of a tensor are, and the tensor."""
    start = x.data_ptr()
    elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) if x.numel() else 0
    return start, start + elements * x.element_size(), x
