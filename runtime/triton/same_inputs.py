"""Tests whether the arguments of a call match those of an earlier one, with a few calls of C++ code.

Loops call a program with the same sizes again and again. Reading and hashing sizes, strides and addresses of 60 inputs
in Python made a replay slower than Inductor's; comparing all of them at once does not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from symshape.runtime.torch_c import tensor_check

TENSORS = (torch.Tensor, torch.nn.Parameter)  # fake tensors and subclasses have no memory of their own
_ADDRESS = torch.Tensor.data_ptr


class SameInputs:
    """``test(args)`` tells whether each argument matches the one at construction: a tensor of equal class, dtype, sizes
    and strides, at the same address if its position is in ``placed``; or an equal value. ``constants`` must be at the
    same addresses too.

    False if that cannot be decided: for one tensor passed twice, for floats, and for values of other types.
    """

    def __init__(self, args: Sequence[Any], placed: Collection[int], constants: Sequence[Any] = ()) -> None:
        tensors = [i for i, x in enumerate(args) if type(x) in TENSORS]
        self._tensors = tensors
        self._values = [(i, type(x), x) for i, x in enumerate(args) if type(x) not in TENSORS]
        self._comparable = all(kind in (int, bool, type(None), str) for _, kind, _ in self._values)
        self._placed = [i for i in tensors if i in placed]
        self._constants = [x for x in constants if isinstance(x, torch.Tensor)]
        self._addresses = self._read(args)
        examples = [args[i] for i in tensors]
        self._alike = tensor_check(examples, [x.shape for x in examples], [x.stride() for x in examples])

    def _read(self, args: Sequence[Any]) -> list[int]:
        return [*map(_ADDRESS, [args[i] for i in self._placed]), *map(_ADDRESS, self._constants)]

    def test(self, args: Sequence[Any]) -> bool:
        return (
            self._comparable
            and all(type(args[i]) is kind and args[i] == value for i, kind, value in self._values)
            and self._alike(*[args[i] for i in self._tensors])
            and self._read(args) == self._addresses
        )
