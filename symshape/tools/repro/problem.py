"""The contents of a repro file: a failing graph, its arguments and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from symshape.random_tensors import Draw, strided_tensor

Size = int | str  # a number, or a Python expression over symbols: "s0", "2*s0", "s0//2"


def number(size: Size, symbols: Mapping[str, int]) -> int:
    """The value of a size for these values of symbols."""
    return size if isinstance(size, int) else int(eval(size, {"math": math}, dict(symbols)))


@dataclass(frozen=True)
class Argument:
    """A tensor argument of the graph: layout in elements, element type, device."""

    name: str
    sizes: Sequence[Size]
    strides: Sequence[Size]
    dtype: torch.dtype
    device: str = "cpu"
    offset: Size = 0
    requires_grad: bool = False

    def at(self, symbols: Mapping[str, int], seed: int = 0) -> torch.Tensor:
        """A random tensor at these values of symbols, the same for equal seeds; integers are 0 or 1."""
        sizes, strides = ([number(one, symbols) for one in part] for part in (self.sizes, self.strides))
        generator = torch.Generator().manual_seed(seed)
        # Scaled so that products of matrices keep their magnitude and deep graphs stay finite.
        draw = Draw(scale=max(sizes[-1], 1) ** -0.5 if len(sizes) > 1 else 1.0)
        made = strided_tensor(sizes, strides, number(self.offset, symbols), self.dtype, generator, draw)
        return made.to(self.device).requires_grad_(self.requires_grad)

    @property
    def dynamic(self) -> list[int]:
        """The dims whose size is not constant."""
        return [d for d, size in enumerate(self.sizes) if not isinstance(size, int)]


@dataclass(frozen=True)
class Problem:
    """A failure: ``graph``, when ``compiled`` and run with ``inputs(sizes)``, fails for one of ``sizes``.

    ``accuracy``: results or gradients that differ from eager mode are failures too; ``grad``: the graph runs with
    gradients.
    """

    graph: torch.nn.Module
    arguments: Sequence[Argument]
    sizes: Sequence[Mapping[str, int]]
    inputs: Callable[[Mapping[str, int]], list[torch.Tensor]]
    compiled: Callable[[Any], Any]
    accuracy: bool = False
    grad: bool = True


def marked(arguments: Sequence[Argument], symbols: Mapping[str, int]) -> list[torch.Tensor]:
    """The arguments at these sizes, with dims marked dynamic or static, as the function ``inputs`` of a file does."""
    made = [one.at(symbols, seed) for seed, one in enumerate(arguments)]
    for one, tensor in zip(arguments, made):
        for d in range(tensor.dim()):
            mark = torch._dynamo.mark_dynamic if d in one.dynamic else torch._dynamo.mark_static
            mark(tensor, d)
    return made
