"""The representation of values that depend on a mask: the space of its selected elements, and forms of values over
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


class Cannot(Exception):
    """Raised where an operation needs the selected elements in contiguous memory; the text says why."""


@dataclass(eq=False)
class Space:
    """The elements that a mask selects, in row-major order: one dim of ``count`` elements replaces the mask's dims.

    ``mask``: a bool node of rank >= 1; ``sizes``: its sizes, nodes or integers. ``origin``: the node that the report
    names the mask by. Made on first use: ``count``, the number of selected elements as a 0-dim i64 tensor, and
    ``ranks``, the number of selected elements up to and including each element of the flattened mask.
    """

    origin: torch.fx.Node
    mask: torch.fx.Node
    sizes: tuple[Any, ...]
    count: torch.fx.Node | None = None
    ranks: torch.fx.Node | None = None

    @property
    def rank(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Compact:
    """A tensor whose dim ``dim`` runs over selected elements, by its full form: ``full`` has the mask's dims in place
    of that dim. Its elements where the mask is false are unspecified."""

    full: torch.fx.Node
    space: Space
    dim: int

    def dims(self, rank: int) -> list[list[int]]:
        """For each dim of the compact tensor (of ``rank`` dims) the dims of the full form."""
        shift = self.space.rank - 1
        return [
            list(range(d, d + shift + 1)) if d == self.dim else [d if d < self.dim else d + shift] for d in range(rank)
        ]


@dataclass(frozen=True)
class Joined:
    """Tensors concatenated along the dim of selected elements; a node stands for a tensor that depends on no mask."""

    pieces: tuple[Compact | torch.fx.Node, ...]
    dim: int


@dataclass(frozen=True)
class Scalar:
    """A number that depends on how many elements are selected, as a 0-dim tensor; ``counts``: it is that number
    itself."""

    tensor: torch.fx.Node
    counts: Space | None = None


@dataclass(frozen=True)
class Positions:
    """``nonzero`` of a mask: [count, rank], the positions of the selected elements."""

    space: Space


@dataclass(frozen=True)
class Uniform:
    """A tensor whose sizes do not depend on the mask, computed in another way."""

    node: torch.fx.Node


Value = Compact | Joined | Scalar | Positions | Uniform


@dataclass(eq=False)
class Component:
    """Nodes that are rewritten together or not at all."""

    parent: Component | None = None
    spaces: list[Space] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    reasons: list[tuple[str, torch.fx.Node]] = field(default_factory=list)

    def root(self) -> Component:
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def join(self, other: Component) -> Component:
        mine, others = self.root(), other.root()
        if mine is not others:
            others.parent = mine
            mine.spaces += others.spaces
            mine.patterns += others.patterns
            mine.reasons += others.reasons
        return mine


def size_of(value: torch.Tensor, dim: int) -> int | None:
    """A size of a tensor, if it is a constant."""
    size = value.size(dim)
    return size if isinstance(size, int) else None


def normal_dims(dims: Any, rank: int) -> list[int]:
    """Dims as non-negative numbers; None and an empty list stand for all of them."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return list(range(rank))
    return [int(d) % max(rank, 1) for d in ([dims] if isinstance(dims, int) else dims)]
