"""Integer tensors and ranges among the inputs of a frame."""

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
    """Makes ``item`` of an integer input an unbacked size, as for any other tensor. PyTorch makes it a backed symbol
    whose guards cause recompiles for 0, for 1, and for each branch on it."""
    changes.wrap(FakeTensorConverter, "from_real_tensor", _without_item)


def ranges_are_constants(changes: Changes) -> None:
    """Makes the bounds of an input range guarded constants, as those of ``range(n)`` are, since ranges are unrolled.
    PyTorch makes them dynamic, and then fails to unroll the range."""
    changes.wrap(RangeVariable, "__init__", _of_constants)


@functools.cache
def _of_constants(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, items: Sequence[Any], **named: Any) -> None:
        original(self, [specialize_symnode(item) for item in items], **named)

    return init


@functools.cache
def _without_item(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_real_tensor(self: Any, fake_mode: Any, t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fake = original(self, fake_mode, t, *args, **kwargs)
        if fake.dtype == torch.int64 and fake.dim() == 0 and isinstance(fake.item_memo, torch.SymInt):
            if not is_unbacked(fake.item_memo):
                fake.item_memo = None
        return fake

    return from_real_tensor
