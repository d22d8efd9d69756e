"""Where a function repeats a sequence of operations: the layers of a model, found in the traced graph.

A layer is a sequence of operations that is there several times in a row, each time with the same attributes and types.
Its operands are, from each layer to the next, the same value from before the layers; another argument of the function
(the layer's weights); or what the layer, or the one before it, computes at the same position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects.accessors import draws_numbers, is_fresh, returned_relations
from symshape.dialects.folded_layers import LayerTable
from symshape.dialects.locations import node_names

LEADING: Final = 4  # layers that are kept at the beginning: two that may have to do with what comes before, two alike
LEAST: Final = LEADING + 3  # layers that there have to be: two left out, and the last
_SHORTEST: Final = 8  # operations of a layer
_CANDIDATES: Final = 4  # periods that are looked at closely
_NARROWINGS: Final = 64  # of one of them


@dataclass(frozen=True)
class Repetition:
    """``count`` layers of ``period`` operations each, from operation ``start`` on."""

    operations: Sequence[ir.Operation]
    start: int
    period: int
    count: int
    table: LayerTable

    def layer(self, number: int) -> Sequence[ir.Operation]:
        """The operations of one layer."""
        first = self.start + number * self.period
        return self.operations[first : first + self.period]


def find_repetition(block: ir.Block) -> tuple[Repetition | None, bool]:
    """The repetition that leaves out most operations, None where nothing is there often enough; and whether operations
    were moved.

    Operations after the layers that use what inner layers compute are moved into them: PyTorch's partitioner appends
    what it computes for backward to the end of forward.
    """
    operations = [view.operation for view in block.operations]
    kinds = _kinds(operations)
    reader: _Reader | None = None
    for period, start, end in _candidates(kinds):
        reader = reader or _Reader(block, operations)
        first = reader.first_start(start, end, period)
        count = 0 if first is None else (end - first) // period
        if first is None or count < LEAST:
            continue
        if reader.move_into_layers(first, period, count):
            return find_repetition(block)[0], True
        table = reader.table(first, period, count)
        if table is not None:
            return Repetition(operations, first, period, count, table), False
    return None, False


def _kinds(operations: Sequence[ir.Operation]) -> list[int]:
    """A number for each operation: equal where all but the operands is. Those with regions are like no other."""
    numbers: dict[Any, int] = {}
    kinds = []
    for position, op in enumerate(operations):
        attributes = tuple(op.attributes[i].attr for i in range(len(op.attributes)))
        key = (op.name, attributes, tuple(result.type for result in op.results), position if len(op.regions) else -1)
        kinds.append(numbers.setdefault(key, len(numbers)))
    return kinds


def _candidates(kinds: Sequence[int]) -> list[tuple[int, int, int]]:
    """(period, start, end) of runs in which operations of one kind are ``period`` apart, the best first."""
    latest: dict[int, int] = {}
    gaps: Counter[int] = Counter()
    for position, kind in enumerate(kinds):
        if kind in latest:
            gaps[position - latest[kind]] += 1
        latest[kind] = position
    found = []
    for period, times in gaps.items():
        if period >= _SHORTEST and times >= LEAST - 1:
            start, length = _longest_run(kinds, period)
            left_out = (length // period + 1 - LEADING - 1) * period
            if left_out > 0 and length // period + 1 >= LEAST:
                found.append((-left_out, period, start, start + length + period))
    return [candidate[1:] for candidate in sorted(found)[:_CANDIDATES]]


def _longest_run(kinds: Sequence[int], period: int) -> tuple[int, int]:
    """Start and length of the longest run of positions whose kind is that of ``period`` later."""
    best, start = (0, 0), 0
    for position in range(len(kinds) - period + 1):
        if position + period == len(kinds) or kinds[position] != kinds[position + period]:
            if position - start > best[1]:
                best = (start, position - start)
            start = position + 1
    return best


class _Reader:
    """What the operands of a block's operations are: numbers of arguments, or results by position."""

    def __init__(self, block: ir.Block, operations: Sequence[ir.Operation]) -> None:
        self._operations = operations
        self._argument = {value: number for number, value in enumerate(block.arguments)}
        self._result = {
            value: (position, number)
            for position, op in enumerate(operations)
            for number, value in enumerate(op.results)
        }
        self._operands = [list(op.operands) for op in operations]
        self._last = len(operations) - 1

    def first_start(self, start: int, end: int, period: int) -> int | None:
        """The first position from which on all operands are as the module says; None where there is none."""
        for _ in range(_NARROWINGS):
            needed = next(
                (found for i in range(start, end - period) if (found := self._needed(i, start, period)) > start), None
            )
            if needed is None:
                return self._first_of_node(start)
            if (end - needed) // period < LEAST:
                return None
            start = needed
        return None

    def _first_of_node(self, position: int) -> int:
        """The first position from there on at which the operations of another graph node begin."""
        names = [set(node_names(self._operations[p].location)) for p in (position - 1, position)] if position else []
        while position and position < self._last and names[0] & names[1]:
            position += 1
            names = [names[1], set(node_names(self._operations[position].location))]
        return position

    def _needed(self, position: int, start: int, period: int) -> int:
        """The least start for which the operands at a position agree with those a period later."""
        needed = start
        here, later = self._operands[position], self._operands[position + period]
        if len(here) != len(later):
            return position + 1
        for one, other in zip(here, later, strict=True):
            a, b = self._result.get(one), self._result.get(other)
            if one == other:
                needed = max(needed, a[0] + 1 if a else start)
            elif a and b and a[1] == b[1] and b[0] - a[0] == period:
                layers = (position - start) // period - (a[0] - start) // period
                needed = needed if layers <= 1 else position + 1
            elif b is None:
                needed = needed if a is None and one.type == other.type else position + 1
            elif not ((a[0] if a else -1) < start <= b[0] < start + period > position) or one.type != other.type:
                # What goes from layer to layer comes from before in the first one.
                needed = max(needed, position + 1 if b[0] < start else max(position, b[0]) - period + 1)
                needed = needed if needed > start else position + 1
        return needed

    def move_into_layers(self, start: int, period: int, count: int) -> bool:
        """Moves calls after the layers to where their operands are, with what is said of their results, if there are
        any that use values of inner layers. Whether that was so."""
        end = start + count * period
        inner = range(start + period, end - period)
        place = [(position, 0) for position in range(len(self._operations))]  # of operations, once they are moved
        behind: dict[int, list[ir.Operation]] = {}  # by position, what is moved there
        needed = False
        for position in range(end, self._last):
            op = self._operations[position]
            latest = max(self._defined(self._operands[position]), key=place.__getitem__, default=-1)
            if op.name != "host.call" or draws_numbers(op) or latest < 0:
                continue
            binds: list[ir.Operation] = []
            while (bind := self._operations[position + 1 + len(binds)]).name == "symshape.bind":
                binds.append(bind)
            sizes = [value for n in range(len(binds)) for value in self._operands[position + 1 + n][1:]]
            if all(place[one] <= place[latest] for one in self._defined(sizes)):
                moved = behind.setdefault(place[latest][0], [])
                moved += [op, *binds]
                place[position] = place[latest][0], len(moved)
                needed = needed or latest in inner
        for first, operations in behind.items() if needed else ():
            while self._operations[first + 1].name == "symshape.bind":
                first += 1
            for op in reversed(operations):
                op.move_after(self._operations[first])
        return needed

    def _defined(self, values: Sequence[Any]) -> list[int]:
        """Positions of the operations that values are results of."""
        return [self._result[value][0] for value in values if value in self._result]

    def table(self, start: int, period: int, count: int) -> LayerTable | None:
        """What differs from layer to layer; None where layers differ in more."""
        nodes = self._nodes(start, period, count)
        arguments = self._arguments(start, period, count)
        returns = self._returns(start, period, count)
        if nodes is None or arguments is None or returns is None:
            return None
        return LayerTable(nodes, arguments, returns)

    def _nodes(self, start: int, period: int, count: int) -> list[list[str]] | None:
        """Names of the graph nodes; None where they do not tell the layers' operations apart."""
        rows: list[list[str]] = []
        for layer in range(count):
            first = start + layer * period
            names = [node_names(op.location) for op in self._operations[first : first + period]]
            if not all(names):
                return None
            rows.append([name for own in names for name in own])
        widths = {len(row) for row in rows}
        once = [dict.fromkeys(row) for row in rows]
        positions = [tuple(list(own).index(name) for name in row) for own, row in zip(once, rows, strict=True)]
        if len(widths) > 1 or len(set(positions)) > 1 or len({n for own in once for n in own}) < sum(map(len, once)):
            return None
        return [list(own) for own in once]

    def _arguments(self, start: int, period: int, count: int) -> list[list[int]] | None:
        columns: dict[tuple[int, ...], None] = {}
        everywhere: set[int] = set()
        for offset in range(period):
            layers = [self._operands[start + layer * period + offset] for layer in range(count)]
            for values in zip(*layers, strict=True):
                numbers = tuple(self._argument.get(value, -1) for value in values)
                if min(numbers) >= 0:
                    if len(set(numbers)) == 1:
                        everywhere.add(numbers[0])
                    else:
                        columns[numbers] = None
        rows = [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(count)]
        own = {number for row in rows for number in row}
        end = start + count * period
        elsewhere = {
            self._argument.get(value, -1)
            for position in range(end, self._last)
            if not self._is_returned_view(position)
            for value in self._operands[position]
        }
        if any(len(set(row)) < len(row) for row in rows) or own & (everywhere | elsewhere):
            return None
        binds = self._binds(own, start)
        alike = all(len({binds.get(number) for number in column}) == 1 for column in columns)
        return rows if alike else None

    def _is_returned_view(self, position: int) -> bool:
        """Whether a call gives a view of arguments that is only returned: no kernel computes it with anything else."""
        op = self._operations[position]
        if op.name == "symshape.bind":
            return True  # what it is about is looked at by itself
        users = [use.owner.operation.name for result in op.results for use in result.uses]
        is_view = op.name == "host.call" and not is_fresh(op) and not self._defined(self._operands[position])
        return is_view and set(users) <= {"symshape.bind", "func.return"}

    def _binds(self, arguments: set[int], end: int) -> dict[int, Any]:
        """By argument, what is said of it before the layers: its binds without the argument itself."""
        found: dict[int, tuple[Any, ...]] = {}
        for op, operands in zip(self._operations[:end], self._operands, strict=False):
            number = self._argument.get(operands[0], -1) if op.name == "symshape.bind" else -1
            if number in arguments:
                found[number] = (*found.get(number, ()), tuple(operands[1:]))
        return found

    def _returns(self, start: int, period: int, count: int) -> list[list[int]] | None:
        """Positions of what the layers return; None where something else uses a value of the layers that change."""
        end = start + count * period
        returned = self._operands[self._last]
        relations = returned_relations(self._operations[self._last])
        rows: list[dict[tuple[int, int], list[int]]] = [{} for _ in range(count)]
        for position, value in enumerate(returned):
            found = self._result.get(value)
            if found and start <= found[0] < end:
                layer, offset = divmod(found[0] - start, period)
                rows[layer].setdefault((offset, found[1]), []).append(position)
        inner = range(1, count - 1)
        for position in (p for p in range(len(self._operations) - 1) if p >= end):
            used = [found[0] for value in self._operands[position] if (found := self._result.get(value))]
            if any(start <= one < end and (one - start) // period in inner for one in used):
                return None
        flat = [[p for key in sorted(row) for p in row[key]] for row in rows]
        shapes = {tuple((key, len(row[key])) for key in sorted(row)) for row in (rows[layer] for layer in inner)}
        kinds = {tuple(relations[p] for p in flat[layer]) for layer in inner}
        if len(shapes) > 1 or len(kinds) > 1:
            return None
        return [flat[layer] if layer in inner else [] for layer in range(count)]
