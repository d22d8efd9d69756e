"""Nested tensors that are views of their values, as ``torch.nested.nested_tensor`` makes them, and views of those."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nested._internal.ops import JAGGED_OPS_TABLE

from symshape.frontend.patches.patch import Changes


def nested_views_are_tensors(changes: Changes) -> None:
    """Makes a nested tensor of the jagged layout not count as a view while a frame is traced.

    For a view, Dynamo also traces the base, and its guards read the base's sizes (``x._base.size()[0]``). A nested
    tensor returned by an operator (``x.half()``, ``x.clone()``) has no base; its guards would fail, and the function
    would be recompiled. The base is only the memory of the values, and nothing is computed from it: programs read and
    write ``_values``, whose aliases are found by their storage.
    """
    changes.attribute(NestedTensor, "_is_view", _no)


def _no(_tensor: Any) -> bool:
    return False


def values_are_differentiable_views(changes: Changes) -> None:
    """Makes ``x.values()`` an alias of the values. PyTorch's rule returns them detached, while autograd, above the
    rule, takes the result for a view; if it is a view of an input, AOTAutograd replays the view at each call, and the
    result has no gradient."""
    aten: Any = torch.ops.aten
    names = (aten.values.default, aten._nested_get_values.default)
    changes.items(JAGGED_OPS_TABLE, dict.fromkeys(names, _values))


def _values(x: Any) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten.alias.default(x._values)
    return found
