"""Nested tensors (jagged layout) as arguments and results of jitted functions: passed as their parts.

An entry takes their values, offsets, lengths and known bounds of the shortest and longest row, each as a dense tensor;
the traced function rebuilds nested tensors from them, and so does the caller from results. So guards are on sizes of
dense tensors, and gradients flow through the values. Which nested tensors share a ragged size is part of the structure
of a call: their offsets are one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.runtime.torch_c import PARTS, Rows, is_jagged, nested_of, rows_of

Tensor = torch.Tensor


@dataclass(frozen=True)
class Form:
    """``rank``: of the values; ``dim``: the ragged one; ``parts``: names of those that there are, in order."""

    rank: int
    dim: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """The key of a part in a path of pytree: ``x.values()``."""

    name: str
    form: Form

    def __str__(self) -> str:
        is_method = self.name in ("values", "offsets", "lengths")
        return f".{self.name}()" if is_method else f".{self.name}"

    def get(self, parent: Any) -> Any:
        return parent.tensors[self.form.parts.index(self.name)]


@dataclass(frozen=True)
class Apart:
    """The parts of a nested tensor: a pytree container, from which it is rebuilt."""

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
        apart = _parts_of(leaf, sources)
        found.append(apart)
        flat += apart.tensors
        forms.append((position, apart.form))
    return found, flat, tuple(forms)


def results_apart(tree: Any) -> Any:
    """The results of a traced function, with ``Apart`` for each nested tensor and ``Sizes`` for each ``torch.Size``."""

    def apart(x: Any) -> Any:
        if isinstance(x, torch.Size):
            return Sizes(tuple(x))
        return _parts_of(x, {}) if is_jagged(x) else x

    return pytree.tree_map(apart, tree, is_leaf=lambda x: isinstance(x, torch.Size))


@dataclass(frozen=True)
class Sizes:
    """A ``torch.Size`` in a pytree, which PyTorch would turn into a tuple."""

    numbers: tuple[Any, ...]


pytree.register_pytree_node(Sizes, lambda sizes: (list(sizes.numbers), None), lambda numbers, _: torch.Size(numbers))


def _parts_of(x: Any, sources: dict[Any, Tensor]) -> Apart:
    rows = rows_of(x)
    offsets, lengths = rows.offsets, rows.lengths
    if lengths is None:
        offsets = sources.setdefault(rows.name, offsets)
    else:
        lengths = sources.setdefault(rows.name, lengths)
    every = (rows.values, offsets, lengths, rows.shortest, rows.longest)
    parts = {name: tensor for name, tensor in zip(PARTS, every) if tensor is not None}
    return Apart(Form(rows.values.dim(), rows.dim, tuple(parts)), tuple(parts.values()))


def _nested(tensors: Iterable[Any], form: Form) -> Tensor:
    parts: Any = dict.fromkeys(PARTS) | dict(zip(form.parts, tensors))
    return nested_of(Rows(**parts, dim=form.dim, name=None))


pytree.register_pytree_node(
    Apart,
    lambda one: (one.tensors, one.form),
    _nested,
    flatten_with_keys_fn=lambda one: ([(Part(n, one.form), t) for n, t in zip(one.form.parts, one.tensors)], one.form),
)
