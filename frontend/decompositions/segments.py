"""``segment_reduce``: checks of the lengths as assertions, then the operator without checks of its own."""

from __future__ import annotations

from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes, known_equal

aten: Any = torch.ops.aten
_check: Any = torch._check


def segment_reduce(
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: Any = None,
    indices: torch.Tensor | None = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Raises eager mode's errors for lengths that are negative or whose sum is not the number of elements, without a
    host read; the operator itself reads no element out of range, whatever the lengths are.

    If the operator checks nothing (offsets; ``unsafe``) or raises another error, it stays a call, and on GPUs too,
    where a failed check would end the process. It has no error for lengths of fewer rows than the data has: that there
    are as many is a guard.
    """
    given = lengths if offsets is None else offsets
    position = axis % max(data.dim(), 1)
    if given is None or not 0 < given.dim() <= data.dim() or position != given.dim() - 1:
        return NotImplemented
    checked = not unsafe and offsets is None and data.device.type == "cpu"
    if not _same_rows(given, data) or not checked or lengths.is_floating_point():
        return NotImplemented
    _check(lengths.numel() > 0, lambda: "min(): Expected reduction dim to be specified for input.numel() == 0.")
    aten._assert_async.msg((lengths >= 0).all(), "lengths contains negative value!")
    message = "Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
    aten._assert_async.msg((lengths.sum(-1) == data.size(position)).all(), f"segment_reduce(): {message}")
    return aten.segment_reduce.default(
        data, reduce, lengths=lengths, indices=indices, axis=axis, unsafe=True, initial=initial
    )


def _same_rows(lengths: Any, data: torch.Tensor) -> bool:
    """Whether there are as many rows of lengths as of data."""
    pairs = list(zip(lengths.shape[:-1], data.shape))
    if has_unbacked_sizes(lengths) or has_unbacked_sizes(data):
        return all(known_equal(rows, size) for rows, size in pairs)
    return all(bool(rows == size) for rows, size in pairs)
