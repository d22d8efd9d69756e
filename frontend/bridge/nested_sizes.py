"""Ragged sizes of nested tensors in a trace: symbols that stand for offsets."""

from __future__ import annotations

from typing import Any

from symshape.runtime.torch_c import rows_of


def ragged_symbol(x: Any) -> Any:
    """The sympy symbol of the ragged size of a fake nested tensor."""
    return x.size(rows_of(x).dim).node.expr
