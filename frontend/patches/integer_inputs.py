"""Integers in tensors and ranges that a frame is given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables.lists import RangeVariable
from torch._subclasses.fake_tensor import FakeTensorConverter

from symshape.frontend.bridge.symbolic_sizes import is_unbacked
from symshape.frontend.patches.patch import Changes


def items_are_unbacked(changes: Changes) -> None:
    """``item`` of an integer input is a data-dependent size, as that of any other tensor. By the usual rule it is a
    symbol with guards on the element, which are compiled anew for 0, for 1 and for what is branched on."""
    changes.wrap(FakeTensorConverter, "from_real_tensor", _without_item)


def ranges_are_constants(changes: Changes) -> None:
    """A range is unrolled, so its ends are guards, as those of ``range(n)`` are. The usual rule makes them dynamic
    where the range is an input, and then fails to unroll it."""
    changes.wrap(RangeVariable, "__init__", _of_constants)


@functools.cache
def _of_constants(usual: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(usual)
    def init(self: Any, items: Sequence[Any], **named: Any) -> None:
        usual(self, [specialize_symnode(item) for item in items], **named)

    return init


@functools.cache
def _without_item(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def from_real_tensor(self: Any, fake_mode: Any, t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fake = usual(self, fake_mode, t, *args, **kwargs)
        if fake.dtype == torch.int64 and fake.dim() == 0 and isinstance(fake.item_memo, torch.SymInt):
            if not is_unbacked(fake.item_memo):
                fake.item_memo = None
        return fake

    return from_real_tensor
