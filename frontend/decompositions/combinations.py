"""``torch.combinations`` of any number of elements: its C++ reads the size as an integer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch


def combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """``torch.combinations`` of a vector of n elements: (number of combinations, r), in the order of ``itertools``.

    As in C++ the indices of all n ** r tuples are compared. How many of them ascend is known: n over r, and with
    replacement n + r - 1 over r."""
    size: Any = input.size(0)
    first = size if not with_replacement else size + r - 1
    factors = [torch.sym_max(first - d, 0) for d in range(r)]
    index = torch.arange(size, device=input.device)
    grids = [index.reshape([-1 if d == dim else 1 for d in range(r)]) for dim in range(r)]
    pairs = zip(grids, grids[1:])
    ascend = [one <= next if with_replacement else one < next for one, next in pairs]
    mask = reduce(torch.logical_and, ascend, torch.ones_like(index, dtype=torch.bool)[(..., *[None] * (r - 1))])
    mask = mask.expand([size] * r)
    return input[torch.nonzero_static(mask, size=math.prod(factors) // math.factorial(r))]


def takes_combinations(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether it is called for a vector of symbolic length, and for few elements of it."""
    x, r, with_replacement = (*args, *[None] * 3)[:3]
    x, r = kwargs.get("input", x), kwargs.get("r", 2 if r is None else r)
    with_replacement = kwargs.get("with_replacement", with_replacement or False)
    is_vector = isinstance(x, torch.Tensor) and x.dim() == 1 and isinstance(x.size(0), torch.SymInt)
    return is_vector and type(r) is int and 1 <= r <= 4 and type(with_replacement) is bool
