"""Nested tensors that are views of their values, as ``torch.nested.nested_tensor`` makes them."""

from __future__ import annotations

from typing import Any

from torch.nested._internal.nested_tensor import NestedTensor

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
