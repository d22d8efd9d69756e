"""A graph that fails, as a file has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from symshape.random_tensors import Draw, strided_tensor

Size = int | str  # a number, or Python over the names of symbols: "s0", "2*s0", "s0//2"


def number(size: Size, symbols: Mapping[str, int]) -> int:
    """What a size is where symbols are these."""
    return size if isinstance(size, int) else int(eval(size, {"math": math}, dict(symbols)))


@dataclass(frozen=True)
class Argument:
    """A tensor that the graph takes."""

    name: str
    sizes: Sequence[Size]
    strides: Sequence[Size]
    dtype: torch.dtype
    device: str = "cpu"
    offset: Size = 0
    requires_grad: bool = False

    def at(self, symbols: Mapping[str, int], seed: int = 0) -> torch.Tensor:
        """Random numbers at these sizes, the same at each call; integers are 0 or 1."""
        sizes, strides = ([number(one, symbols) for one in part] for part in (self.sizes, self.strides))
        generator = torch.Generator().manual_seed(seed)
        # Products of matrices neither grow nor vanish: the numbers of deep graphs stay finite.
        draw = Draw(scale=max(sizes[-1], 1) ** -0.5 if len(sizes) > 1 else 1.0)
        made = strided_tensor(sizes, strides, number(self.offset, symbols), self.dtype, generator, draw)
        return made.to(self.device).requires_grad_(self.requires_grad)

    @property
    def dynamic(self) -> list[int]:
        """The dims whose size is no constant."""
        return [d for d, size in enumerate(self.sizes) if not isinstance(size, int)]


@dataclass(frozen=True)
class Problem:
    """``graph`` fails when it is ``compiled`` and run with ``inputs(sizes)`` for one of ``sizes``.

    ``accuracy``: it also fails where its results and gradients are others than eager mode's; ``grad``: whether they are
    computed with gradients.
    """

    graph: torch.nn.Module
    arguments: Sequence[Argument]
    sizes: Sequence[Mapping[str, int]]
    inputs: Callable[[Mapping[str, int]], list[torch.Tensor]]
    compiled: Callable[[Any], Any]
    accuracy: bool = False
    grad: bool = True


def marked(arguments: Sequence[Argument], symbols: Mapping[str, int]) -> list[torch.Tensor]:
    """What ``inputs`` of a file does: the arguments, with their dynamic and static dims marked."""
    made = [one.at(symbols, seed) for seed, one in enumerate(arguments)]
    for one, tensor in zip(arguments, made):
        for d in range(tensor.dim()):
            mark = torch._dynamo.mark_dynamic if d in one.dynamic else torch._dynamo.mark_static
            mark(tensor, d)
    return made
