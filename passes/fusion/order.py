"""Dependences between groups, which keep fusion from making a cycle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from symshape.passes.fusion.compute_graph import Compute, Graph

if TYPE_CHECKING:
    from symshape.passes.fusion.group import Group


class Order:
    """For each group, and each other operation, the set of groups that it depends on (transitively), as bits of an
    integer: bit i is the group of index i. Sets grow as nodes join and groups merge; dependents are updated.

    A query is one operation, and an update one integer operation per group, however large the graph is.
    """

    def __init__(self, graph: Graph, group_of: dict[Compute, Group]) -> None:
        self.graph, self.group_of = graph, group_of
        self._needs: dict[Any, int] = {}  # Group or operation -> groups
        self._bits: dict[Group, int] = {}  # a group, and those that it has taken in

    def start(self, group: Group, values: Iterable[ir.Value]) -> None:
        """Adds a group, which reads these values."""
        self._needs[group] = self.needs(values)
        self._bits[group] = 1 << group.index

    def needs(self, values: Iterable[ir.Value]) -> int:
        """The groups that must have run before all of these values exist."""
        found = 0
        for value in values:
            storage = self.graph.storage(value)
            producer = self.graph.producer.get(storage)
            if producer is None:
                found |= self._of_operation(storage)
            elif (owner := self.group_of.get(producer)) is not None:
                found |= self._needs[owner] | self._bits[owner]
            else:  # computed by its readers, from what it reads
                found |= self.needs([*(a.base for a in producer.inputs), *producer.captured])
        return found

    def depends(self, values: Iterable[ir.Value], group: Group) -> bool:
        """Does any of these values need the group's kernel to have run?"""
        return bool(self.needs(values) & self._bits[group])

    def are_free(self, first: Group, second: Group) -> bool:
        """Neither needs the other."""
        return not (self._needs[first] & self._bits[second] or self._needs[second] & self._bits[first])

    def grow(self, group: Group, values: Iterable[ir.Value]) -> None:
        """The group reads these values too."""
        self._spread(group, self._needs[group] | self.needs(values))

    def merge(self, into: Group, group: Group) -> None:
        self._bits[into] |= self._bits.pop(group)
        self._spread(into, self._needs[into] | self._needs.pop(group))

    def _spread(self, group: Group, needed: int) -> None:
        """The group needs ``needed`` from now on, and so does all that needs the group, which may have grown."""
        own = self._bits[group]
        self._needs[group] = needed & ~own
        for unit, known in self._needs.items():
            if known & own:
                self._needs[unit] = known | own | needed

    def _of_operation(self, value: ir.Value) -> int:
        if isinstance(value.owner, ir.Block):
            return 0
        return self._of(value.owner.operation if hasattr(value.owner, "operation") else value.owner)

    def _of(self, op: Any) -> int:
        if op not in self._needs:
            self._needs[op] = 0  # also keeps a circle, which valid IR does not have, from hanging
            self._needs[op] = self.needs(v for v in op.operands if self.graph.comes_late(v))
            for before in self.graph.called_before.get(op, ()):
                self._needs[op] |= self._of(before)
        return self._needs[op]
