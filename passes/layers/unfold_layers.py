"""unfold-layers: the layers that ``fold-layers`` left out, as kernels and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import draws_numbers, main_functions
from symshape.dialects.folded_layers import LayerTable, folded_layers, set_folded_layers
from symshape.dialects.locations import node_names
from symshape.passes.framework.base import Pass, PassContext, RunWithout
from symshape.passes.layers.repetition import LEADING


@dataclass(frozen=True)
class UnfoldLayers(Pass):
    """Copies what became of the fourth of the equal layers, for each layer that ``fold-layers`` left out.

    Before::

        %3 = "host.launch"(%2, %w2) {callee = @kernel_0}
        %4 = "host.launch"(%3, %w3) {callee = @kernel_0}
        %7 = "host.launch"(%4, %w6) {callee = @kernel_0}

    After::

        %3 = "host.launch"(%2, %w2) {callee = @kernel_0}
        %4 = "host.launch"(%3, %w3) {callee = @kernel_0}
        %5 = "host.launch"(%4, %w4) {callee = @kernel_0}
        %6 = "host.launch"(%5, %w5) {callee = @kernel_0}
        %7 = "host.launch"(%6, %w6) {callee = @kernel_0}

    That is right where the fourth layer came out as the third did: the same operations for the nodes at the same
    positions of the layer, on operands at the same positions. Else the compile is repeated without the two passes
    (``RunWithout``). An operation that computes nodes of two layers, or uses values of them, belongs to the later one.
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


_EARLIER, _COPIED = LEADING - 2, LEADING - 1  # the layers that are compared, of which the later one is copied


Nodes = frozenset[tuple[int, int]]  # layer and position there


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
        for op, own in zip(self.operations[:-1], self.own, strict=False):
            operands = [self.owner[value] for value in op.operands if value in self.owner]
            layer = max([*(layer for layer, _ in own), *operands], default=None)
            if layer is not None:
                self.layers[layer].add(op)
                self.owner |= dict.fromkeys(op.results, layer)
        binds = [op for op in self.operations if op.name == "symshape.bind"]
        self._bound = {op.operands[0]: self._own(op) for op in reversed(binds)}  # what the first bind says
        self.arguments = {value: number for number, value in enumerate(block.arguments)}

    def run(self) -> int:
        """The number of operations that were copied. RunWithout where the layers came out differently."""
        self._compare()
        returned = self.operations[-1]
        earlier_returns = [returned.operands[position] for position in self.table.returns[_EARLIER]]
        copies = self._copy()
        self._use(copies, earlier_returns)
        return sum(len(copy) for layer, copy in copies.items() if layer != _COPIED)

    def _own(self, op: ir.Operation) -> Nodes:
        """The nodes of the layers that an operation computes: layer and position there."""
        return frozenset(self.place[name] for name in node_names(op.location) if name in self.place)

    # Whether the copied layer came out as the one before it.

    def _compare(self) -> None:
        earlier, copied = (self.layers[n] for n in (_EARLIER, _COPIED))
        if len(earlier.operations) != len(copied.operations):
            _differ(f"one has {len(earlier.operations)} operations, the next {len(copied.operations)}")
        own = dict(zip(self.operations, self.own, strict=True))
        runs = self._runs()
        for one, other in zip(earlier.operations, copied.operations, strict=True):
            alike = one.name == other.name and not len(other.regions) and _attributes(one) == _attributes(other)
            if not alike or [r.type for r in one.results] != [r.type for r in other.results]:
                _differ(f"'{one.name}' and '{other.name}'")
            if own[other] != _shifted(own[one]) or _others(one, own) != _others(other, own):
                _differ(
                    f"'{one.name}' computes {node_names(one.location)}, '{other.name}' {node_names(other.location)}"
                )
            if len(one.operands) != len(other.operands):
                _differ(f"operands of '{other.name}'")
            for x, y in zip(one.operands, other.operands, strict=True):
                if not self._correspond(x, y):
                    _differ(f"an operand of '{other.name}' at {node_names(other.location)}")
                before = earlier.position.get(y)
                if before and runs[copied.operations[before[0]]] > runs[other]:
                    _differ(f"the order of operands of '{other.name}'")
        if len({runs[op] for op in copied.operations if draws_numbers(op)}) > 1:
            _differ("random numbers are drawn in several parts of a layer")

    def _correspond(self, one: Any, other: Any) -> bool:
        """Whether an operand of the earlier layer is to it what another is to the copied one."""
        earlier, copied = (self.layers[n].position for n in (_EARLIER, _COPIED))
        if other in copied:
            return earlier.get(one) == copied[other]
        if other in earlier:
            return self.owner.get(one) == _EARLIER - 1 and self._node(other) == (
                _shifted(self._node(one)[0]),
                self._node(one)[1],
            )
        if self.owner.get(other) == self.count - 1:
            return False
        if one in self.arguments and other in self.arguments:
            return self._argument(self.arguments[one], 1) == self.arguments[other]
        return bool(one == other)

    def _argument(self, number: int, layers: int) -> int:
        """The argument that is so many layers later what one is; the same, where it is of no layer."""
        rows = self.table.arguments
        places = [(layer + layers, row.index(number)) for layer, row in enumerate(rows) if number in row]
        found = {rows[layer][place] for layer, place in places if 0 <= layer < self.count}
        if places and len(found) != 1:
            _differ(f"argument {number} is several things")
        return found.pop() if found else number

    def _node(self, value: Any) -> tuple[Nodes, int]:
        """The nodes that a result is the value of, and which of the values of these nodes it is."""
        results = list(value.owner.results)
        nodes = [self._bound.get(result, frozenset()) for result in results]
        position = results.index(value)
        return nodes[position], nodes[:position].count(nodes[position])

    def _runs(self) -> dict[Any, int]:
        """By operation of the copied layer, which of its runs of neighbours it is in."""
        members, runs, run, inside = set(self.layers[_COPIED].operations), {}, -1, False
        for op in self.operations:
            if op in members:
                run += 0 if inside else 1
                runs[op] = run
            inside = op in members
        return runs

    # The other layers.

    def _copy(self) -> dict[int, list[ir.Operation]]:
        """By layer, its operations: after each run of the copied layer, the run of each layer left out."""
        left_out = range(LEADING, self.count - 1)
        copies: dict[int, list[ir.Operation]] = {_COPIED: self.layers[_COPIED].operations}
        copies |= {layer: [] for layer in left_out}
        runs = self._runs()
        for run in sorted(set(runs.values())):
            members = [(n, op) for n, op in enumerate(copies[_COPIED]) if runs[op] == run]
            following = self.operations[self.operations.index(members[-1][1]) + 1]
            with ir.InsertionPoint(following):
                for layer in left_out:
                    renamed = self._names(layer)
                    for _, op in members:
                        operands = [self._value(value, layer, copies) for value in op.operands]
                        copies[layer].append(_clone(op, operands, renamed))
        return copies

    def _names(self, layer: int) -> dict[str, str]:
        """The names of nodes in a layer and those before it, by what they are for the copied one."""
        nodes = self.table.nodes
        pairs = (zip(nodes[_COPIED - back], nodes[layer - back], strict=True) for back in range(LEADING))
        return {old: new for pair in pairs for old, new in pair}

    def _value(self, value: Any, layer: int, copies: dict[int, list[ir.Operation]]) -> Any:
        """What an operand of the copied layer is in another one."""
        own, previous = (self.layers[n].position.get(value) for n in (_COPIED, _EARLIER))
        if own is not None:
            return copies[layer][own[0]].results[own[1]]
        if previous is not None:
            return copies[layer - 1][previous[0]].results[previous[1]]
        if value in self.arguments:
            return self.block.arguments[self._argument(self.arguments[value], layer - _COPIED)]
        return value

    def _use(self, copies: dict[int, list[ir.Operation]], earlier_returns: Sequence[Any]) -> None:
        """The last layer follows the one before it; what the layers left out return is theirs."""
        end = self.count - 1
        everywhere = {value for op in self.layers[_COPIED].operations for value in op.operands}
        for op in self.layers[end].operations:
            for number, operand in enumerate(op.operands):
                if operand in self.arguments:
                    op.operands[number] = self._before_last(operand)
                elif operand in self.layers[_COPIED].position:
                    position, result = self.layers[_COPIED].position[operand]
                    op.operands[number] = copies[end - 1][position].results[result]
                elif 0 < self.owner.get(operand, 0) < _COPIED and operand not in everywhere:
                    _differ(f"an operand of '{op.name}' in the last layer")
        returned = self.operations[-1]
        in_last = [returned.operands[position] for position in self.table.returns[_COPIED]]
        for layer in range(_COPIED, end):
            for position, value, kept in zip(self.table.returns[layer], earlier_returns, in_last, strict=True):
                returned.operands[position] = self._returned(value, kept, layer, copies)

    def _before_last(self, argument: Any) -> Any:
        """What an argument of the last layer's operations is: the copied layer's is that of the one before the last."""
        number = self.arguments[argument]
        kept = [layer for layer in range(LEADING) if number in self.table.arguments[layer]]
        if not kept:
            return argument
        if number in self.table.arguments[-1]:
            _differ(f"argument {number} is several things")
        return self.block.arguments[self._argument(number, self.count - 2 - _COPIED)]

    def _returned(self, value: Any, kept: Any, layer: int, copies: dict[int, list[ir.Operation]]) -> Any:
        """What a layer returns where the earlier returns ``value`` and the copied, followed by the last, ``kept``."""
        earlier, copied = (self.layers[n].position for n in (_EARLIER, _COPIED))
        if value in earlier:  # it is computed in its own layer
            position, result = earlier[value]
            return copies[layer][position].results[result]
        if value in copied:  # with the next one
            if layer == self.count - 2:
                return kept
            position, result = copied[value]
            return copies[layer + 1][position].results[result]
        _differ("what a layer returns is computed elsewhere")


def _shifted(nodes: Nodes) -> Nodes:
    """The nodes at the same positions of the next layers."""
    return frozenset((layer + 1, position) for layer, position in nodes)


def _differ(what: str) -> Any:
    raise RunWithout(("fold-layers", "unfold-layers"), f"equal layers came out differently: {what}")


def _attributes(op: ir.Operation) -> list[tuple[str, ir.Attribute]]:
    return [(op.attributes[i].name, op.attributes[i].attr) for i in range(len(op.attributes))]


def _others(op: ir.Operation, own: dict[Any, Nodes]) -> int:
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
