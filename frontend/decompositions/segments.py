"""``segment_reduce`` of lengths that are checked: the checks, then the operator, which checks nothing more of them."""

from __future__ import annotations

from typing import Any

import torch

aten: Any = torch.ops.aten
_check: Any = torch._check


def segment_reduce(
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Eager mode's errors for lengths that are negative or are not as many as there are elements. They are reported
    without a host read; the operator reads no element that is none, whatever the lengths are.

    Where the operator itself checks nothing (offsets; ``unsafe``) or has another error, it stays a call.
    """
    if unsafe or offsets is not None or lengths is None or lengths.dim() == 0 or lengths.is_floating_point():
        return NotImplemented
    position = axis % max(data.dim(), 1)
    if position != lengths.dim() - 1 or lengths.dim() > data.dim():
        return NotImplemented
    _check(lengths.numel() > 0, lambda: "min(): Expected reduction dim to be specified for input.numel() == 0.")
    aten._assert_async.msg((lengths >= 0).all(), "lengths contains negative value!")
    total = "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
    aten._assert_async.msg((lengths.sum(-1) == data.size(position)).all(), total)
    return aten.segment_reduce.default(
        data, reduce, lengths=lengths, indices=indices, axis=axis, unsafe=True, initial=initial
    )
