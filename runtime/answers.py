"""Functions that answer whether tensors are equal with a Python number, at which the tracer breaks the graph.

Here the answer is a tensor, and what reads it an ``item``, which can be returned, asserted, and branched on as others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.runtime.torch_private import has_unbacked_sizes


def is_close(
    a: torch.Tensor, b: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> torch.Tensor:
    """``torch.allclose`` as a tensor with one boolean."""
    if not (a.is_floating_point() and a.dtype == b.dtype and (has_unbacked_sizes(a) or has_unbacked_sizes(b))):
        return torch.isclose(a, b, rtol, atol, equal_nan).all()
    difference = (a - b).abs()  # as isclose has it, which asks whether there are elements
    close = (a == b) | (difference.isfinite() & (difference <= atol + (rtol * b).abs()))
    return (close | (a.isnan() & b.isnan()) if equal_nan else close).all()


def is_equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``torch.equal`` as a tensor with one boolean. Nothing need be known of the sizes."""
    if a.dim() != b.dim():
        return torch.zeros((), dtype=torch.bool, device=a.device)
    sizes = [torch.scalar_tensor(t.numel(), dtype=torch.int64, device=a.device) for t in (a, b)]
    same = sizes[0] == sizes[1]
    for ours, theirs in zip(a.shape, b.shape):
        pair = [torch.scalar_tensor(n, dtype=torch.int64, device=a.device) for n in (ours, theirs)]
        same = same & (pair[0] == pair[1])
    whole = a.reshape(-1)
    other = torch.cat([b.reshape(-1), b.new_zeros(1)])  # read in bounds whatever its length is
    places = torch.arange(whole.size(0), device=a.device).clamp(max=other.size(0) - 1)
    return same & (whole == other[places]).all()


_ANSWERS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.allclose: is_close, torch.equal: is_equal, "allclose": is_close, "equal": is_equal,
}  # fmt: skip


def answers(node: torch.fx.Node) -> bool:
    """Whether a call of a Dynamo graph gives such an answer."""
    return node.op in ("call_function", "call_method") and node.target in _ANSWERS


def ask_for_item(node: torch.fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """The call becomes an ``item`` of a tensor, which is computed before it, and whose traced value is returned."""
    function = _ANSWERS[node.target]
    value = function(*args, **kwargs)
    with node.graph.inserting_before(node):
        found = node.graph.call_function(function, node.args, node.kwargs)
    found.meta = {**node.meta, "example_value": value}
    node.op, node.target, node.args, node.kwargs = "call_method", "item", (found,), {}
    return value
