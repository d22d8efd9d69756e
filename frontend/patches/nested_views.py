"""Nested tensors that are views of their values, as ``torch.nested.nested_tensor`` makes them, and views of these."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nested._internal.ops import JAGGED_OPS_TABLE

from symshape.frontend.patches.patch import Changes


def nested_views_are_tensors(changes: Changes) -> None:
    """While a frame is traced, a nested tensor of the jagged layout is no view.

    Of a view Dynamo traces the base as well, with sizes of its own, and its guards read them (``x._base.size()[0]``). A
    nested tensor that an operator made (``x.half()``, ``x.clone()``) has no base: there the guards fail, and the
    function is compiled again. The base is memory that the values lie in; nothing is computed of it: what a program
    reads and writes is ``_values``, whose aliases are found by its storage.
    """
    changes.attribute(NestedTensor, "_is_view", _no)


def _no(_tensor: Any) -> bool:
    return False


def values_are_differentiable_views(changes: Changes) -> None:
    """``x.values()`` is an alias of the values, and by PyTorch's rule detached ones, which autograd, above the rule,
    takes for a view. Where it is a result that is a view of an input, AOTAutograd repeats at each call what made the
    view: the result would have no gradient."""
    aten: Any = torch.ops.aten
    names = (aten.values.default, aten._nested_get_values.default)
    changes.items(JAGGED_OPS_TABLE, dict.fromkeys(names, _values))


def _values(x: Any) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten.alias.default(x._values)
    return found
