"""Inputs that share memory, where one of them is written to.

AOTAutograd traces inputs as they are at the first call. If those share no memory it makes no guard, and the graph reads
its inputs before it writes to any. Those that share memory then are views of one argument, their base, and the graph is
right for them, but not where another input lies in that memory at a later call. Inputs that overlap otherwise than at
the first call run one operator after the other, as in eager mode.

Eager mode rejects an operator that writes to a part of what it reads, and a graph does not. So inputs that overlap in
part run in eager mode once for each layout, and in the graph after that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, Final

import torch

from symshape.runtime.entries import share_no_memory
from symshape.runtime.torch_c import overlap

log = logging.getLogger("symshape.frames")

_KEPT_LAYOUTS: Final = 4096  # of one graph, known to be no error; inputs of further ones run in eager mode


def in_eager_mode_if_shared(
    run: Callable[..., Any],
    eager: Callable[..., Any],
    tensors: Sequence[int],
    changed: Sequence[int],
    bases: Sequence[Collection[int]] = (),
) -> Callable[..., Any]:
    """``run``, just compiled from ``eager``; for inputs that it does not serve, or that eager mode may reject,
    ``eager``. ``tensors``: positions of the arguments that are dense tensors; ``changed``: of those that are written
    to; ``bases``: for each base in the place of arguments their positions."""
    written = [i for i in changed if i in tensors]
    both = [*written, *(i for i in tensors if i not in written)]
    if not written or len(tensors) < 2:
        return run
    allowed: set[Hashable] = set()

    def call(*args: Any) -> Any:
        memory = {args[i].untyped_storage().data_ptr() for i in both}
        if len(memory) == len(both):
            return run(*args)
        pairs = [(both[k], both[j]) for k, j in _overlapping([args[i] for i in both], len(written))]
        if not all(any(i in base and j in base for base in bases) for i, j in pairs):
            log.info("inputs share memory that is written to, unlike at the first call: the graph runs in eager mode")
            return eager(*args)
        if all(_same_elements(args[i], args[j]) for i, j in pairs) or (layouts := _layouts(args)) in allowed:
            return run(*args)
        log.info("inputs overlap that are written to: the graph runs in eager mode once for their layouts")
        result = eager(*args)
        if len(allowed) < _KEPT_LAYOUTS:
            allowed.add(layouts)
        return result

    return call


def _overlapping(tensors: Sequence[torch.Tensor], written: int) -> Iterator[tuple[int, int]]:
    """The pairs of positions of tensors that overlap, where at least one is of the first ``written``."""
    if share_no_memory(tensors[:written], tensors[written:]):
        return
    before: list[tuple[int, int]] = []  # ends and positions: those that may reach into the next one
    for start, end, i in sorted((*_range(one), i) for i, one in enumerate(tensors)):
        before = [row for row in before if row[0] > start]
        for _, j in before:
            if min(i, j) < written and overlap(tensors[i], tensors[j]):
                yield i, j
        before.append((end, i))


def _range(x: torch.Tensor) -> tuple[int, int]:
    """The addresses between which the elements of a tensor are."""
    start = x.data_ptr()
    elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) if x.numel() else 0
    return start, start + elements * x.element_size()


def _same_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same elements in the same order, which eager mode lets an operator read and write."""
    return one.data_ptr() == other.data_ptr() and one.size() == other.size() and one.stride() == other.stride()


def _layouts(args: Sequence[Any]) -> Hashable:
    """All that decides where operators of a graph read and write."""
    tensors = [(x.size(), x.stride(), x.storage_offset()) for x in args if isinstance(x, torch.Tensor)]
    return *tensors, *(x for x in args if isinstance(x, int))
