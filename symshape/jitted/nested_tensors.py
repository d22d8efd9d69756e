"""Nested tensors (jagged layout) as arguments and results of jitted functions: they are taken apart at the border.

An entry is for their values, offsets, lengths and what is known of the shortest and the longest row, each a dense
tensor of its own; in the traced function, and of what it returns, nested tensors are made of them again. So guards are
on the sizes of dense tensors, and gradients go through the values. Which nested tensors have the same ragged size is
part of the form of a call: their offsets are one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.utils._pytree as pytree

from symshape.runtime.torch_c import Rows, is_jagged, nested_of, rows_of

Tensor = torch.Tensor
VALUES, OFFSETS, LENGTHS, SHORTEST, LONGEST = range(5)
_SPELLINGS: Final = (".values()", ".offsets()", ".lengths()", ".shortest", ".longest")


@dataclass(frozen=True)
class Form:
    """``rank``: of the values; ``dim``: the ragged one; ``parts``: those that there are, in order."""

    rank: int
    dim: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """The key of a part in a path of pytree: ``x.values()``."""

    number: int
    form: Form

    def __str__(self) -> str:
        return _SPELLINGS[self.number]

    def get(self, parent: Any) -> Any:
        return parent.tensors[self.form.parts.index(self.number)]


@dataclass(frozen=True)
class Apart:
    """A nested tensor taken apart: a container of pytree, of which the nested tensor is made again."""

    form: Form
    tensors: tuple[Tensor, ...]


def take_apart(leaves: Sequence[Any]) -> tuple[list[Any], list[Any], tuple[tuple[int, Form], ...]]:
    """Leaves of a call with ``Apart`` for each nested tensor; the same with its parts; the positions and the forms of
    those. Where ragged sizes are equal to eager mode, the tensors that they are the names of are one object."""
    sources: dict[Any, Tensor] = {}
    found: list[Any] = []
    flat: list[Any] = []
    forms: list[tuple[int, Form]] = []
    for position, leaf in enumerate(leaves):
        if not is_jagged(leaf):
            found.append(leaf)
            flat.append(leaf)
            continue
        apart = _apart(leaf, sources)
        found.append(apart)
        flat += apart.tensors
        forms.append((position, apart.form))
    return found, flat, tuple(forms)


def results_apart(tree: Any) -> Any:
    """What a traced function returns, with ``Apart`` for each nested tensor."""
    return pytree.tree_map(lambda x: _apart(x, {}) if is_jagged(x) else x, tree)


def _apart(x: Any, sources: dict[Any, Tensor]) -> Apart:
    rows = rows_of(x)
    offsets, lengths = rows.offsets, rows.lengths
    if lengths is None:
        offsets = sources.setdefault(rows.name, offsets)
    else:
        lengths = sources.setdefault(rows.name, lengths)
    every = enumerate((rows.values, offsets, lengths, rows.shortest, rows.longest))
    parts = {number: tensor for number, tensor in every if tensor is not None}
    return Apart(Form(rows.values.dim(), rows.dim, tuple(parts)), tuple(parts.values()))


def _together(tensors: Iterable[Any], form: Form) -> Tensor:
    every: Any = dict(zip(form.parts, tensors))
    parts = (every[VALUES], every[OFFSETS], every.get(LENGTHS), every.get(SHORTEST), every.get(LONGEST))
    return nested_of(Rows(*parts, form.dim, None))


pytree.register_pytree_node(
    Apart,
    lambda one: (one.tensors, one.form),
    _together,
    flatten_with_keys_fn=lambda one: ([(Part(n, one.form), t) for n, t in zip(one.form.parts, one.tensors)], one.form),
)
