"""Sizes as the tracer has them: what is known of them, and what is asked of them at the cost of a guard."""

from __future__ import annotations

from typing import Any

import sympy
import torch


def is_unbacked(size: torch.SymInt) -> bool:
    """Whether a size is data-dependent."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size))


def has_unbacked_sizes(tensor: torch.Tensor) -> bool:
    """Whether a size is data-dependent."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(tensor))


def known_multiple(a: Any, b: Any) -> bool:
    """Whether a size is a multiple of another, whatever the symbols in them are (those that make it 0 aside)."""
    left, right = (x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (a, b))
    return right != 0 and bool(sympy.cancel(left / right).is_integer)


def guard_or_false(condition: Any) -> bool:
    """Whether a condition on sizes holds, which is then a guard; False where it is on sizes that are in the data."""
    from torch.fx.experimental import symbolic_shapes

    return condition if isinstance(condition, bool) else bool(symbolic_shapes.guard_or_false(condition))


def expression_of(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """The sympy expression that a symbolic number stands for."""
    return number.node.expr
