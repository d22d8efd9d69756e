"""PyTorch's decomposition tables: its own, Inductor's choice of them, and the tracer that applies a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decompositions as torch_rules
from torch._decomp.decompositions import Reduction
from torch.fx.experimental.proxy_tensor import make_fx

MEAN: int = Reduction.MEAN.value  # of a loss, as an operator's argument
SUM: int = Reduction.SUM.value


def inductor_table() -> dict[Any, Callable[..., Any]]:
    """Inductor's table: operator -> decomposition."""
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


def torch_decompositions(operators: Sequence[Any]) -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of these operators, all overloads of them."""
    from torch._decomp import get_decompositions

    return dict(get_decompositions(operators))


def traced(function: Callable[..., Any], table: dict[Any, Callable[..., Any]], *args: Any) -> torch.fx.GraphModule:
    """The ATen graph of a function, called with these, with the decompositions of a table."""
    graph: torch.fx.GraphModule = make_fx(function, decomposition_table=table)(*args)
    return graph


def draws_taken_apart(table: dict[Any, Callable[..., Any]]) -> list[Any]:
    """The operators of a table made from `inductor_table` that Inductor decomposes to draw random numbers faster."""
    from torch._inductor.decomposition import decompositions, fast_random_decomps

    fast = fast_random_decomps()
    return [op for op in table if op in fast and fast[op] is not decompositions.get(op)]


def resized(
    mode: str, x: torch.Tensor, sizes: Sequence[Any], factors: Sequence[Any], align_corners: bool = False
) -> torch.Tensor:
    """``x`` (N, C, ...) interpolated to these sizes in a mode of ``torch.nn.functional.interpolate``, by PyTorch's
    decomposition, in which the factors may be symbolic."""
    rules: Any = torch_rules
    found: torch.Tensor
    if mode == "bicubic":
        found = rules.upsample_bicubic2d_default(x, sizes, align_corners, *factors)
    elif mode == "linear":
        found = rules._upsample_linear(x, sizes, align_corners, factors)
    else:
        found = rules._upsample_nearest(x, sizes, factors, exact=mode == "nearest-exact")
    return found
