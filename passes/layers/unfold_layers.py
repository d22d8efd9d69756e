"""unfold-layers: the layers that ``fold-layers`` left out, as kernels and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import draws_numbers, main_functions
from symshape.dialects.locations import node_names
from symshape.passes.framework.base import Pass, PassContext, RunWithout
from symshape.passes.layers.layer_table import LayerTable, folded_layers, set_folded_layers
from symshape.passes.layers.repetition import LEADING


@dataclass(frozen=True)
class UnfoldLayers(Pass):
    """Copies what became of the third of the equal layers, for each layer that ``fold-layers`` left out.

    Before::

        %2 = "host.launch"(%1, %w1) {callee = @kernel_0}
        %3 = "host.launch"(%2, %w2) {callee = @kernel_0}
        %6 = "host.launch"(%3, %w5) {callee = @kernel_0}

    After::

        %2 = "host.launch"(%1, %w1) {callee = @kernel_0}
        %3 = "host.launch"(%2, %w2) {callee = @kernel_0}
        %4 = "host.launch"(%3, %w3) {callee = @kernel_0}
        %5 = "host.launch"(%4, %w4) {callee = @kernel_0}
        %6 = "host.launch"(%5, %w5) {callee = @kernel_0}

    That is right where the third layer came out as the second did: the same operations for the nodes at the same positions
    of the layer, on operands at the same positions. Else the compile is repeated without the two passes (``RunWithout``).
    An operation that computes nodes of two layers belongs to the later one.
    """

    name: ClassVar[str] = "unfold-layers"
    statistics: ClassVar[dict[str, str]] = {"operations": "operations that are copied"}

    def run(self, module: ir.Module, context: PassContext) -> list[ir.Operation]:
        changed = []
        copied = 0
        for main in main_functions(module):
            tables = folded_layers(main)
            for table in reversed(tables):
                copied += _Unfolding(main.regions[0].blocks[0], table).run()
            set_folded_layers(main, [])
            changed += [main] if tables else []
        self.count(context, operations=copied)
        return changed


_SECOND, _THIRD = LEADING - 2, LEADING - 1


@dataclass
class _Layer:
    """The operations of a layer in order, and the position of each result."""

    operations: list[ir.Operation] = field(default_factory=list)
    position: dict[Any, tuple[int, int]] = field(default_factory=dict)

    def add(self, op: ir.Operation) -> None:
        for number, value in enumerate(op.results):
            self.position[value] = len(self.operations), number
        self.operations.append(op)


class _Unfolding:
    def __init__(self, block: ir.Block, table: LayerTable) -> None:
        self.block, self.table = block, table
        self.count = len(table.nodes)
        self.kept = (*range(LEADING), self.count - 1)
        self.place = {name: (layer, n) for layer in self.kept for n, name in enumerate(table.nodes[layer])}
        self.operations = [view.operation for view in block.operations]
        self.layers = {layer: _Layer() for layer in self.kept}
        self.owner: dict[Any, int] = {}  # layer of a result
        self.own = [self._own(op) for op in self.operations]
        for op, own in zip(self.operations, self.own, strict=True):
            layer = max((layer for layer, _ in own), default=None)
            if layer is not None:
                self.layers[layer].add(op)
                self.owner |= dict.fromkeys(op.results, layer)
        self.arguments = {value: number for number, value in enumerate(block.arguments)}

    def run(self) -> int:
        """The number of operations that were copied. RunWithout where the layers came out differently."""
        self._compare()
        returned = self.operations[-1]
        second_returns = [returned.operands[position] for position in self.table.returns[_SECOND]]
        copies = self._copy()
        self._use(copies, second_returns)
        return sum(len(copy) for layer, copy in copies.items() if layer != _THIRD)

    def _own(self, op: ir.Operation) -> frozenset[tuple[int, int]]:
        """The nodes of the layers that an operation computes: layer and position there."""
        return frozenset(self.place[name] for name in node_names(op.location) if name in self.place)

    # Whether the third layer came out as the second.

    def _compare(self) -> None:
        second, third = (self.layers[n] for n in (_SECOND, _THIRD))
        if len(second.operations) != len(third.operations):
            _differ(f"one has {len(second.operations)} operations, the next {len(third.operations)}")
        own = dict(zip(self.operations, self.own, strict=True))
        runs = self._runs()
        for one, other in zip(second.operations, third.operations, strict=True):
            alike = one.name == other.name and not len(other.regions) and _attributes(one) == _attributes(other)
            if not alike or [r.type for r in one.results] != [r.type for r in other.results]:
                _differ(f"'{one.name}' and '{other.name}'")
            if own[other] != {(layer + 1, n) for layer, n in own[one]} or _others(one, own) != _others(other, own):
                _differ(f"'{one.name}' computes {node_names(one.location)}, '{other.name}' {node_names(other.location)}")
            if len(one.operands) != len(other.operands):
                _differ(f"operands of '{other.name}'")
            for x, y in zip(one.operands, other.operands, strict=True):
                if not self._correspond(x, y, own):
                    _differ(f"an operand of '{other.name}' at {node_names(other.location)}")
                earlier = second.position.get(y)
                if earlier and runs[third.operations[earlier[0]]] > runs[other]:
                    _differ(f"the order of operands of '{other.name}'")
        if len({runs[op] for op in third.operations if draws_numbers(op)}) > 1:
            _differ("random numbers are drawn in several parts of a layer")

    def _correspond(self, one: Any, other: Any, own: dict[Any, frozenset[tuple[int, int]]]) -> bool:
        """Whether an operand of the second layer is to it what another is to the third."""
        second, third = (self.layers[n].position for n in (_SECOND, _THIRD))
        if other in third:
            return second.get(one) == third[other]
        if other in second:
            at_first = self.owner.get(one) == 0
            if not at_first or ir.OpResult(one).result_number != ir.OpResult(other).result_number:
                return False
            before = {(layer + 1, n) for layer, n in own[one.owner]}
            return before == own[other.owner]
        if self.owner.get(other) == self.count - 1:
            return False
        if other in self.arguments and one in self.arguments and one != other:
            column = [self.arguments[one], self.arguments[other]]
            return column in [list(pair) for pair in zip(*(self.table.arguments[n] for n in (_SECOND, _THIRD)))]
        return one == other and self.arguments.get(other, -1) not in self.table.arguments[_THIRD]

    def _runs(self) -> dict[Any, int]:
        """By operation of the third layer, which of its runs of neighbours it is in."""
        members, runs, run, inside = set(self.layers[_THIRD].operations), {}, -1, False
        for op in self.operations:
            if op in members:
                run += 0 if inside else 1
                runs[op] = run
            inside = op in members
        return runs

    # The other layers.

    def _copy(self) -> dict[int, list[ir.Operation]]:
        """By layer, its operations: after each run of the third layer, the run of each layer left out."""
        left_out = range(LEADING, self.count - 1)
        copies: dict[int, list[ir.Operation]] = {_THIRD: self.layers[_THIRD].operations}
        copies |= {layer: [] for layer in left_out}
        names = [dict(zip(self.table.nodes[_THIRD], self.table.nodes[layer])) for layer in range(self.count)]
        before = [dict(zip(self.table.nodes[_SECOND], self.table.nodes[layer - 1])) for layer in range(self.count)]
        runs = self._runs()
        for run in sorted(set(runs.values())):
            members = [(n, op) for n, op in enumerate(copies[_THIRD]) if runs[op] == run]
            following = self.operations[self.operations.index(members[-1][1]) + 1]
            with ir.InsertionPoint(following):
                for layer in left_out:
                    renamed = names[layer] | before[layer]
                    for _, op in members:
                        operands = [self._value(value, layer, copies) for value in op.operands]
                        copies[layer].append(_clone(op, operands, renamed))
        return copies

    def _value(self, value: Any, layer: int, copies: dict[int, list[ir.Operation]]) -> Any:
        """What an operand of the third layer is in another one."""
        own, previous = (self.layers[n].position.get(value) for n in (_THIRD, _SECOND))
        if own is not None:
            return copies[layer][own[0]].results[own[1]]
        if previous is not None:
            return copies[layer - 1][previous[0]].results[previous[1]]
        number = self.arguments.get(value, -1)
        if number in (row := self.table.arguments[_THIRD]):
            return self.block.arguments[self.table.arguments[layer][row.index(number)]]
        return value

    def _use(self, copies: dict[int, list[ir.Operation]], second_returns: Sequence[Any]) -> None:
        """The last layer follows the one before it; what the layers left out return is theirs."""
        third, end = self.layers[_THIRD].position, self.count - 1
        last = copies[end - 1]
        for op in self.layers[end].operations:
            for number, operand in enumerate(op.operands):
                if operand in third:
                    position, result = third[operand]
                    op.operands[number] = last[position].results[result]
        returned = self.operations[-1]
        in_last = [returned.operands[position] for position in self.table.returns[_THIRD]]
        for layer in range(_THIRD, end):
            for position, value, kept in zip(self.table.returns[layer], second_returns, in_last, strict=True):
                returned.operands[position] = self._returned(value, kept, layer, copies)

    def _returned(self, value: Any, kept: Any, layer: int, copies: dict[int, list[ir.Operation]]) -> Any:
        """What a layer returns where the second returns ``value`` and the third, followed by the last, ``kept``."""
        second, third = (self.layers[n].position for n in (_SECOND, _THIRD))
        if value in second:  # it is computed in its own layer
            position, result = second[value]
            return copies[layer][position].results[result]
        if value in third:  # with the next one
            if layer == self.count - 2:
                return kept
            position, result = third[value]
            return copies[layer + 1][position].results[result]
        _differ("what a layer returns is computed elsewhere")


def _differ(what: str) -> Any:
    raise RunWithout(("fold-layers", "unfold-layers"), f"equal layers came out differently: {what}")


def _attributes(op: ir.Operation) -> list[tuple[str, ir.Attribute]]:
    return [(op.attributes[i].name, op.attributes[i].attr) for i in range(len(op.attributes))]


def _others(op: ir.Operation, own: dict[Any, frozenset[tuple[int, int]]]) -> int:
    """How many nodes an operation computes that are of no layer."""
    return len(node_names(op.location)) - len(own[op])


def _clone(op: ir.Operation, operands: Sequence[Any], names: dict[str, str]) -> ir.Operation:
    return ir.Operation.create(
        op.name,
        results=[result.type for result in op.results],
        operands=operands,
        attributes=dict(_attributes(op)),
        loc=_renamed(op.location, names),
    )


def _renamed(location: ir.Location, names: dict[str, str]) -> ir.Location:
    """The location with other names of nodes; lines are the same, since layers run the same lines of the model."""
    match location:
        case ir.NameLoc():
            child = _renamed(location.child_loc, names)
            return ir.Location.name(names.get(location.name_str, location.name_str), child)
        case ir.FusedLoc():
            return ir.Location.fused([_renamed(part, names) for part in location.locations])
        case _:
            return location
