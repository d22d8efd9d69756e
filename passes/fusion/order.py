"""Which kernels must have run before which: what keeps fusion from making a circle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from symshape.passes.fusion.graph import Compute, Graph

if TYPE_CHECKING:
    from symshape.passes.fusion.group import Group


class Order:
    """For each group, and each other operation asked for, the set of groups that it needs, as the bits of an integer:
    bit i stands for the group of index i. Sets grow as nodes join and groups merge; all who need the grown one grow.

    Asking costs nothing then, and growing one operation on integers for each group, however large the graph is.
    """

    def __init__(self, graph: Graph, group_of: dict[Compute, Group]) -> None:
        self.graph, self.group_of = graph, group_of
        self._needs: dict[Any, int] = {}  # Group or operation -> groups

    def start(self, group: Group, values: Iterable[ir.Value]) -> None:
        """A new group, which reads these values."""
        self._needs[group] = self.needs(values)

    def needs(self, values: Iterable[ir.Value]) -> int:
        """The groups that must have run before all of these values exist."""
        found = 0
        for value in values:
            storage = self.graph.storage(value)
            producer = self.graph.producer.get(storage)
            if producer is None:
                found |= self._of_operation(storage)
            elif (owner := self.group_of.get(producer)) is not None:
                found |= self._needs[owner] | 1 << owner.index
            else:  # computed by its readers, from what it reads
                found |= self.needs([*(a.base for a in producer.inputs), *producer.captured])
        return found

    def depends(self, values: Iterable[ir.Value], group: Group) -> bool:
        """Does any of these values need the group's kernel to have run?"""
        return bool(self.needs(values) >> group.index & 1)

    def are_free(self, first: Group, second: Group) -> bool:
        """Neither needs the other."""
        return not (self._needs[first] >> second.index | self._needs[second] >> first.index) & 1

    def grow(self, group: Group, values: Iterable[ir.Value]) -> None:
        """The group reads these values too."""
        own = 1 << group.index
        self._spread(own, self._needs[group] | (self.needs(values) & ~own), [group])

    def merge(self, into: Group, group: Group) -> None:
        both = 1 << into.index | 1 << group.index
        self._spread(both, (self._needs[into] | self._needs[group]) & ~both, [into, group])

    def _spread(self, groups: int, needed: int, members: list[Group]) -> None:
        """The groups (bits, ``members``) need ``needed`` from now on; who needs one of them needs all of it."""
        for member in members:
            self._needs[member] = needed
        for unit, known in self._needs.items():
            if known & groups:
                self._needs[unit] = known | groups | needed

    def _of_operation(self, value: ir.Value) -> int:
        if isinstance(value.owner, ir.Block):
            return 0
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if op not in self._needs:
            self._needs[op] = 0  # also keeps a circle, which valid IR does not have, from hanging
            self._needs[op] = self.needs(v for v in op.operands if isinstance(v.type, ir.RankedTensorType))
        return self._needs[op]
