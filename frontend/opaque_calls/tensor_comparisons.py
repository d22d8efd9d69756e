"""Functions that compare tensors and return a Python bool, which would break the graph.

Here the result is a tensor, read by an ``item``: it can be returned, asserted and branched on like other unbacked
values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes


def is_close(
    input: torch.Tensor, other: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> torch.Tensor:
    """``torch.allclose`` as a tensor with one boolean."""
    in_data = input.is_floating_point() and (has_unbacked_sizes(input) or has_unbacked_sizes(other))
    if not in_data or input.dtype != other.dtype or rtol < 0 or atol < 0:
        return torch.isclose(input, other, rtol, atol, equal_nan).all()
    difference = (input - other).abs()  # as isclose, which guards on emptiness
    close = (input == other) | (difference.isfinite() & (difference <= atol + (rtol * other).abs()))
    return (close | (input.isnan() & other.isnan()) if equal_nan else close).all()


def is_equal(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``torch.equal`` as a tensor with one boolean. Nothing need be known of the sizes."""
    if input.dim() != other.dim():
        return torch.zeros((), dtype=torch.bool, device=input.device)
    same = torch.ones((), dtype=torch.bool, device=input.device)
    for ours, theirs in zip(input.shape, other.shape):
        pair = [torch.scalar_tensor(n, dtype=torch.int64, device=input.device) for n in (ours, theirs)]
        same = same & (pair[0] == pair[1])
    whole = input.reshape(-1)
    longer = torch.cat([other.reshape(-1), other.new_zeros(1)])  # read in bounds whatever its length is
    indices = torch.arange(whole.size(0), device=input.device).clamp(max=longer.size(0) - 1)
    return same & (whole == longer[indices]).all()


_COMPARISONS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.allclose: is_close,
    torch.equal: is_equal,
    "allclose": is_close,
    "equal": is_equal,
}


def is_comparison(node: torch.fx.Node) -> bool:
    """Whether a call of a Dynamo graph compares tensors so."""
    return node.op in ("call_function", "call_method") and node.target in _COMPARISONS


def read_as_item(node: torch.fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """The call becomes an ``item`` of a tensor, which is computed before it, and whose traced value is returned."""
    function = _COMPARISONS[node.target]
    value = function(*args, **kwargs)
    with node.graph.inserting_before(node):
        found = node.graph.call_function(function, node.args, node.kwargs)
    found.meta = {**node.meta, "example_value": value}
    node.op, node.target, node.args, node.kwargs = "call_method", "item", (found,), {}
    return value
