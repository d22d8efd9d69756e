"""PyTorch's decomposition tables: its own, Inductor's choice of them, and the tracer that applies a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp.decompositions import Reduction
from torch.fx.experimental.proxy_tensor import make_fx

MEAN: int = Reduction.MEAN.value  # of a loss, as an operator's argument


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
