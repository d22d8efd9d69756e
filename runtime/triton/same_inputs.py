"""Whether the arguments of a call are like those of an earlier one, by a few calls of C++ code.

A loop calls a program with the same sizes again and again. Reading and hashing the sizes, strides and address of each
of 60 inputs in Python made a replay slower than Inductor's, which the comparison of all of them at once is not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from symshape.runtime.torch_c import tensor_check

TENSORS = (torch.Tensor, torch.nn.Parameter)  # others (fake tensors, subclasses) have no memory of their own
_ADDRESS = torch.Tensor.data_ptr


class SameInputs:
    """``test(args)``: whether each argument is what ``args`` were when this was made: a tensor of the same class,
    dtype, sizes and strides; at the same address, for positions that are ``placed`` and for ``constants``; or an equal
    value.

    False where it does not know: of the same tensor in two places, of floats, of what is no plain value.
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
