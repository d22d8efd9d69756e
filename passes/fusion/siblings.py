"""Merges groups that read the same tensor over the same space, so that it is read once."""

from __future__ import annotations

from collections.abc import Iterable

from torch_mlir import ir

from symshape.passes.fusion.compute_graph import Compute
from symshape.passes.fusion.group import Group, Grouping
from symshape.prover.numbers.expr import Expr

_Key = tuple[tuple[Expr, ...], ir.Value]  # a space, and a tensor that is read over it


class Siblings:
    """Groups by space and by the large tensors that they read, in simplest form: those that may merge are found at
    once, and the time grows with the number of reads, not with that of pairs of groups."""

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self._known: dict[_Key, dict[int, Group]] = {}

    def enter(self, group: Group, nodes: Iterable[Compute]) -> dict[_Key, None]:
        """Records the reads of new members of a group."""
        keys = self._keys(group, nodes)
        for key in keys:
            self._known.setdefault(key, {})[group.index] = group
        return keys

    def merge(self, group: Group, nodes: Iterable[Compute]) -> None:
        """Enters new members of a group, which then merges with the first group that reads one of their tensors over
        the same space, where neither needs the other."""
        found = {index: other for key in self.enter(group, nodes) for index, other in self._known[key].items()}
        for index in sorted(found):
            other = found[index]
            if other is not group and self._mergeable(other, group):
                self._merge(min(other, group, key=_index), max(other, group, key=_index))
                return

    def _keys(self, group: Group, nodes: Iterable[Compute]) -> dict[_Key, None]:
        """Keys of the large tensors that a group reads: reads at every point of the space of a large tensor, or of a
        part of one."""
        space = tuple(self.grouping.facts.simplify(size) for size in group.space)
        every = {f"k{i}" for i, size in enumerate(space) if size.as_int() != 1}
        keys: dict[_Key, None] = {}
        for node in nodes:
            placed = {f"d{i}": e.symbols for i, e in enumerate(group.placements[node])}
            for access in self.grouping.reads[node]:
                names = {name for e in access.map for d in e.symbols for name in placed.get(d, ())}
                if every <= names:
                    keys[space, access.base] = None
        return keys

    def _mergeable(self, first: Group, second: Group) -> bool:
        if first.has_reduction and first.has_scan != second.has_scan:
            return False
        if first.has_scan and second.has_scan and (first.has_associative_scan or second.has_associative_scan):
            return False
        if first.reduced != second.reduced or not first.placements or not second.placements:
            return False
        if len(first.placements) + len(second.placements) > self.grouping.max_members:
            return False
        return self.grouping.order.are_free(first, second)

    def _merge(self, into: Group, group: Group) -> None:
        self.grouping.merge(into, group)
        self.enter(into, into.placements)


def _index(group: Group) -> int:
    return group.index
