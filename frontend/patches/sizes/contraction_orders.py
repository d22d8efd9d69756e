"""The order in which ``torch.einsum`` contracts three operands or more, if opt_einsum is installed.

opt_einsum takes each size as a number, which made it a constant: there was a graph for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from symshape.frontend.bridge.symbolic_sizes import hint_of
from symshape.frontend.patches.patch import Changes


def orders_are_of_first_sizes(changes: Changes) -> None:
    """Gives opt_einsum the sizes of the call that is traced; from left to right where a size depends on data."""
    module: Any = torch.backends.opt_einsum  # it stands for ``m``, the module that it is made of
    changes.wrap(module.m, "get_opt_einsum", _with_hints)


@functools.cache
def _with_hints(original: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(original)
    def get_opt_einsum() -> Any:
        package = original()

        def contract_path(equation: str, *operands: torch.Tensor, **options: Any) -> Any:
            shapes = [tuple(map(hint_of, operand.shape)) for operand in operands]
            if any(size is None for shape in shapes for size in shape):
                return [(0, 1)] * (len(operands) - 1), None
            return package.contract_path(equation, *shapes, shapes=True, **options)

        return SimpleNamespace(contract_path=contract_path)

    return get_opt_einsum
