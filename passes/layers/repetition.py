"""Finds repeated sequences of operations in a function: the layers of a model.

A layer is a sequence of library calls that occurs several times in a row, each time with the same attributes, types and
layouts. Where one layer ends and the next starts is free: it is chosen so that operations that would be in one kernel
stay together.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from torch_mlir import ir

from symshape.artifact.element_types import ITEM_SIZE
from symshape.dialects.accessors import call_target, draws_numbers, is_fresh
from symshape.dialects.reals import is_real, python
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.types import dtype_of
from symshape.prover.numbers.expr import Expr, product

_SHORTEST: Final = 12  # operations of a layer
_PERIODS: Final = 16  # the most frequent distances of equal operations, which are searched for runs
_CANDIDATES: Final = 4  # periods that are looked at closely
_WHOLE: Final = 1000  # what it costs to compute in two kernels what would be computed in one
# What fusion computes again in each kernel that reads it, rather than keep it in memory.
_LIGHT: Final = frozenset(
    {
        *("prims.convert_element_type.default", "aten._to_copy.default", "aten.clone.default", "aten.where.self"),
        *(
            "aten.full.default",
            "aten.scalar_tensor.default",
            "aten.neg.default",
            "aten.abs.default",
            "aten.relu.default",
        ),
        *("aten.bitwise_not.default", "aten.logical_not.default", "aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor"),
        *("aten.logical_and.default", "aten.logical_or.default", "aten.minimum.default", "aten.maximum.default"),
        *(f"aten.{name}.{of}" for name in ("add", "sub", "mul", "div") for of in ("Tensor", "Scalar")),
        *(f"aten.{name}.{of}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for of in ("Tensor", "Scalar")),
    }
)


@dataclass(frozen=True)
class Layers:
    """Equal layers, in order: of each its operations, and its tensors from outside, which are at the same places.

    ``results``: which of a layer's results are used outside of it, as (operation, result). ``shared``: operations from
    before the layers that each of them does for itself. ``sizes``: those of the block.
    """

    operations: Sequence[Sequence[ir.Operation]]
    inputs: Sequence[Sequence[ir.Value]]
    results: Sequence[tuple[int, int]]
    shared: Sequence[ir.Operation]
    sizes: Sizes


@dataclass(frozen=True)
class Targets:
    """Calls by their targets: those that become ``native`` code, and those that give a view of their operand."""

    native: Set[str]
    views: Set[str]


def find_layers(block: ir.Block, targets: Targets) -> tuple[Layers | None, bool]:
    """(layers, moved): the layers that save most operations, None if no sequence is repeated often enough; and whether
    operations were moved.

    An operation after the layers that uses values of a single one is moved into that layer: PyTorch's partitioner
    appends what it computes for backward to the end of forward.
    """
    reader = _Reader(block, targets)
    if reader.sizes.foreign:  # a layer would have to say which of its operands kernels cannot read
        return None, False
    moved = any(reader.move_into_layers(*candidate) for candidate in _candidates(reader.kinds)[:1])
    reader = _Reader(block, targets) if moved else reader
    for period, start, end in _candidates(reader.kinds):
        costs = reader.costs(start, end, period)
        for offset in sorted(range(period), key=costs.__getitem__):
            if costs[offset] >= _WHOLE:
                break
            found = reader.layers(start + offset, end, period)
            if found is not None:
                return found, moved
    return None, moved


def _candidates(kinds: Sequence[int]) -> list[tuple[int, int, int]]:
    """(period, start, end) of runs in which each operation equals the one ``period`` before it, those that save most
    first."""
    latest: dict[int, int] = {}
    gaps: Counter[int] = Counter()
    for position, kind in enumerate(kinds):
        if kind in latest:
            gaps[position - latest[kind]] += 1
        latest[kind] = position
    found = []
    for period in [gap for gap, _ in gaps.most_common() if gap >= _SHORTEST][:_PERIODS]:
        start, length = _longest_run(kinds, period)
        if length >= period:
            found.append((period - length, period, start, start + length + period))
    return [candidate[1:] for candidate in sorted(found)[:_CANDIDATES]]


def _longest_run(kinds: Sequence[int], period: int) -> tuple[int, int]:
    """Start and length of the longest run of positions whose kind is that of ``period`` later."""
    best, start = (0, 0), 0
    for same, run in itertools.groupby(map(operator.eq, kinds, itertools.islice(kinds, period, None))):
        length = sum(1 for _ in run)
        if same and length > best[1]:
            best = (start, length)
        start += length
    return best


@dataclass
class _Item:
    """An operation: its tensor operands, and its uses by other items."""

    op: ir.Operation
    name: str
    target: str
    operands: list[ir.Value]
    depth: int = 0  # library calls that have to be made before it
    root: int | ir.Value = -1  # of a view: the item or argument whose memory it shows; of anything else itself
    readers: list[tuple[int, int]] = field(default_factory=list)  # (which of the results, item that reads it)
    binds: list[tuple[int, int]] = field(default_factory=list)

    @property
    def last_reader(self) -> int:
        return max((at for _, at in self.readers), default=-1)


@dataclass(frozen=True)
class _Shareable:
    """An item that layers could recompute, whatever their number: its result, the bytes of an element of that, and
    ``whole``: its operands of as many elements, with the bytes of each one's."""

    position: int
    is_view: bool
    result: ir.Value
    size: int
    is_single: bool
    whole: Sequence[tuple[ir.Value, int]]


_position: Final = operator.attrgetter("position")


@dataclass
class _Light:
    """The items before ``end`` that a layer could recompute for itself, and the bytes that each reads per element."""

    end: int = 0
    found: dict[int, None] = field(default_factory=dict)
    read: dict[ir.Value, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Signature:
    """What must be equal between layers in addition to the kinds of their operations."""

    operands: tuple[Hashable, ...]
    shared: tuple[int, ...]
    layouts: tuple[tuple[ir.Type, Layout | None], ...]  # of what they have from outside
    results: tuple[tuple[int, int], ...]


class _Reader:
    """The operations of a block by position, library calls and binds, without arithmetic on sizes."""

    def __init__(self, block: ir.Block, targets: Targets) -> None:
        self.targets = targets
        self.sizes = Sizes(block)
        operations = [(op.name, op) for view in block.operations for op in (view.operation,)]
        self.sizes.learn(op for _, op in operations)
        self.producer: dict[ir.Value, tuple[int, int]] = {}  # (item, which of its results)
        self.items: list[_Item] = []
        self.kinds: list[int] = []
        self.alone: set[int] = set()  # items that are no part of a layer
        self.counts: dict[ir.Value, Expr | None] = {}  # of elements, computed on demand
        self.light: dict[int, _Light] = {}  # by a number of layers
        numbers: dict[Hashable, int] = {}
        for name, op in operations:
            if not name.startswith("arith."):
                self._enter(name, op)
                kind = self._kind(self.items[-1])
                self.kinds.append(numbers.setdefault(kind, len(numbers)))
                if isinstance(kind, int):
                    self.alone.add(len(self.items) - 1)
        self.native_readers: dict[int | ir.Value, list[int]] = {}  # of what has not a known number of elements
        for position, item in enumerate(self.items):
            if self._is_computed(position):
                for root in {self._root(value) for value in item.operands if self._is_large(value)}:
                    self.native_readers.setdefault(root, []).append(position)

    def _enter(self, name: str, op: ir.Operation) -> None:
        position = len(self.items)
        target = call_target(op) if name == "host.call" else ""
        tensors = [v for v in _operands(op) if _is_tensor(v)]
        item = _Item(op, name, target, tensors, root=position)
        self.items.append(item)
        if name == "symshape.bind":
            if tensors[0] in self.producer:
                at, number = self.producer[tensors[0]]
                self.items[at].binds.append((number, position))
            return
        for at, number in (self.producer[value] for value in tensors if value in self.producer):
            made = self.items[at]
            made.readers.append((number, position))
            item.depth = max(item.depth, made.depth + (made.target not in self.targets.native))
        self.producer.update((result, (position, i)) for i, result in enumerate(op.results))
        if target in self.targets.views:
            item.root = self._root(tensors[0])

    def _root(self, value: ir.Value) -> int | ir.Value:
        """The item or argument that a value is, or is a view of."""
        return self.items[self.producer[value][0]].root if value in self.producer else value

    def _kind(self, item: _Item) -> Hashable:
        """A key that is equal for operations that differ in tensors alone; unique for an operation that no layer may
        contain."""
        op = item.op
        if item.name == "symshape.bind":
            layout = self.sizes.layouts.get(item.operands[0])
            return ("bind", layout) if layout is not None and item.operands[0] in self.producer else len(self.items)
        if item.name != "host.call" or not (is_fresh(op) or item.target in self.targets.views):
            return len(self.items)
        if isinstance(op.location, ir.FusedLoc):  # a layer's location has one part for each of its calls
            return len(self.items)
        operands = tuple(self._operand(value) for value in op.operands)
        if None in operands:
            return len(self.items)
        attributes = tuple((one.name, one.attr) for one in (op.attributes[i] for i in range(len(op.attributes))))
        return attributes, operands, tuple(result.type for result in op.results)

    def _operand(self, value: ir.Value) -> Hashable:
        """The properties of an operand that must be equal in all layers; None if it cannot be an operand of a layer."""
        if _is_tensor(value):
            return value.type
        if value in self.sizes:
            return self.sizes.expr(value)
        return python(value, self.sizes, str) if is_real(value) else None

    # --- where a layer begins ------------------------------------------------------------------------------------

    def costs(self, start: int, end: int, period: int) -> list[int]:
        """The cost of starting layers at ``start``, at the operation after it, and so on.

        First, no kernel may be cut in two; then few values should cross, and views cost more.
        """
        costs = [0] * period
        first = start + ((end - start) // period - 1) // 2 * period
        for position in range(first, first + period):
            item = self.items[position]
            if item.name != "host.call":  # what is said of a result stands after it
                costs[(position - start) % period] += _WHOLE
            for at in range(position + 1, min(item.last_reader, position + period) + 1):
                costs[(at - start) % period] += 2 if item.root == position else 3
            for before, last in self._fused_ranges(position) if item.root == position else ():
                for at in range(before + 1, min(last, before + period) + 1):
                    costs[(at - start) % period] += _WHOLE
        return costs

    def _fused_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """The ranges (first, last) of positions that kernels compute together: of a value and the native code that
        reads it."""
        readers: dict[int, list[int]] = {}
        for at in self._uses(position):
            if self._is_computed(at):
                readers.setdefault(self.items[at].depth, []).append(at)
        if self._is_computed(position):
            readers.setdefault(self.items[position].depth, []).append(position)
        return ((min(found), max(found)) for found in readers.values())

    def _uses(self, position: int) -> Iterator[int]:
        """The positions of a value's uses, directly or through views."""
        for _, at in self.items[position].readers:
            if self.items[at].target in self.targets.views:
                yield from self._uses(at)
            else:
                yield at

    def _is_computed(self, position: int) -> bool:
        """Whether an operation is native code that computes something."""
        target = self.items[position].target
        return target in self.targets.native and target not in self.targets.views

    def move_into_layers(self, period: int, start: int, end: int) -> bool:
        """Moves operations that follow the layers to the producers of their operands, if one of these is in an inner
        layer. Returns whether anything was moved."""
        place = {position: position for position in range(end)}  # behind which one an operation is, once it is moved
        behind: dict[int, list[ir.Operation]] = {}
        for position in range(end, len(self.items)):
            item = self.items[position]
            if item.name == "symshape.bind":
                continue
            if isinstance(self._kind(item), int):
                break  # it may change what others read
            made = [self.producer[value][0] for value in item.operands if value in self.producer]
            at = max((place.get(one, end) for one in made), default=-1)
            operations = [item.op, *(self.items[bind].op for _, bind in item.binds)]
            if start <= at < end and not draws_numbers(item.op) and self._are_sizes_known(operations, at):
                place[position] = at
                behind.setdefault(at, []).extend(operations)
        if not any(at < end - period for at in behind):
            return False
        for at, operations in behind.items():
            last = self.items[max((bind for _, bind in self.items[at].binds), default=at)].op
            for op in reversed(operations):
                op.move_after(last)
        return True

    def _are_sizes_known(self, operations: Sequence[ir.Operation], position: int) -> bool:
        """Whether the numbers that operations use are computed before the one at ``position``."""
        used = [value.owner for op in operations for value in op.operands if not _is_tensor(value)]
        place = self.items[position].op
        return all(isinstance(owner, ir.Block) or owner.is_before_in_block(place) for owner in used)

    # --- layers --------------------------------------------------------------------------------------------------

    def layers(self, start: int, end: int, period: int) -> Layers | None:
        """The longest run of equal layers that start at ``start``."""
        firsts = range(start, end - period + 1, period)
        shared = self._shared(start, len(firsts))
        signatures = [
            None if self._is_joined(range(f, f + period), shared) else self._signature(f, period, shared)
            for f in firsts
        ]
        best, begin = range(0), 0
        for i in range(1, len(signatures) + 1):
            if i == len(signatures) or signatures[i] != signatures[begin]:
                best = max(best, range(begin, i if signatures[begin] is not None else begin), key=len)
                begin = i
        found = signatures[best[0]] if len(best) > 1 else None
        if found is None or any(layout is None for _, layout in found.layouts):
            return None
        operations = [[item.op for item in self.items[f : f + period]] for f in (firsts[i] for i in best)]
        inputs = [list(self._inputs(firsts[i], period, shared)) for i in best]
        own = self._needed(firsts[best[0]], period, shared)
        shared_operations = [self.items[i].op for i in own]
        return Layers(operations, inputs, self._results(firsts[best[0]], period), shared_operations, self.sizes)

    def _is_joined(self, layer: range, shared: Set[int]) -> bool:
        """Whether a kernel would fuse something of a layer with something outside of it: a producer, a reader, or
        another reader of the same value."""
        for position in filter(self._is_computed, layer):
            item = self.items[position]
            near = {self._root(value) for value in item.operands} - shared
            others = {at for root in (*near, position) for at in self.native_readers.get(root, ())}
            others |= {root for root in near if isinstance(root, int) and self._is_computed(root)}
            if any(self.items[at].depth == item.depth for at in others - shared if at not in layer):
                return True
        return False

    def _shared(self, start: int, count: int) -> frozenset[int]:
        """Items before the layers that each of ``count`` layers recomputes for itself: views, and light code on values
        in memory that is not otherwise needed in memory, if fewer bytes are read that way."""
        light = self.light.setdefault(count, _Light())
        first, last = (bisect_left(self._may_be_shared, at, key=_position) for at in (light.end, start))
        for one in self._may_be_shared[first:last]:
            read = sum(light.read.get(value, size) for value, size in one.whole)
            # A single element is never worth a kernel of its own.
            cheaper = one.is_single or (count - 1) * read < count * one.size
            if one.is_view or cheaper and self._is_light(one.position, light.found.keys()):
                light.found[one.position], light.read[one.result] = None, read
        light.end = max(light.end, start)
        return frozenset(at for at in light.found if at < start)

    @cached_property
    def _may_be_shared(self) -> list[_Shareable]:
        """All views and light code of one result, in order."""
        found = []
        for position, item in enumerate(self.items):
            is_view = item.target in self.targets.views
            if not (is_view or item.target in _LIGHT) or position in self.alone or len(item.op.results) != 1:
                continue
            result = item.op.results[0]
            count = self._count(result)
            whole = [value for value in dict.fromkeys(item.operands) if self._count(value) == count]
            sizes = [(value, _item_size(value)) for value in whole]
            found.append(_Shareable(position, is_view, result, _item_size(result), count == 1, sizes))
        return found

    def _is_light(self, position: int, light: Set[int]) -> bool:
        """Whether fusion would recompute the item in each reader. ``light``: its operands are such items too."""
        item = self.items[position]
        roots = {root for value in item.operands if isinstance(root := self._root(value), int)}
        return (
            (item.target in _LIGHT and is_fresh(item.op))
            and all(root in light or not self._is_computed(root) for root in roots)
            and all(map(self._is_computed, self._uses(position)))
        )

    def _is_large(self, value: ir.Value) -> bool:
        count = self._count(value)
        return count is None or count.as_int() is None

    def _count(self, value: ir.Value) -> Expr | None:
        if value not in self.counts:
            layout = self.sizes.layouts.get(value)
            self.counts[value] = None if layout is None else product(layout.sizes)
        return self.counts[value]

    def _needed(self, first: int, period: int, shared: Set[int]) -> list[int]:
        """The operations of ``shared`` that a layer needs, with their binds, in order."""
        found: set[int] = set()
        waiting = [value for item in self.items[first : first + period] for value in item.operands]
        while waiting:
            at, _ = self.producer.get(waiting.pop(), (-1, 0))
            if at in shared and at not in found:
                found |= {at, *(bind for _, bind in self.items[at].binds)}
                waiting += self.items[at].operands
        return sorted(found)

    def _inputs(self, first: int, period: int, shared: Set[int]) -> dict[ir.Value, int]:
        """Tensors that a layer has from outside, numbered in the order in which they are used."""
        found: dict[ir.Value, int] = {}
        own = self._needed(first, period, shared)
        for position in (*own, *range(first, first + period)):
            for value in self.items[position].operands:
                at = self.producer.get(value, (-1, 0))[0]
                if at < first and at not in own:
                    found.setdefault(value, len(found))
        return found

    def _signature(self, first: int, period: int, shared: Set[int]) -> _Signature:
        inputs = self._inputs(first, period, shared)
        operands = []
        for item in self.items[first : first + period]:
            for value in item.operands:
                at, number = self.producer.get(value, (-1, 0))
                place = inputs[value] if value in inputs else at if at < first else at - first
                operands.append(("from" if value in inputs else "shared" if at < first else "own", place, number))
        layouts = tuple((value.type, self.sizes.layouts.get(value)) for value in inputs)
        own = tuple(self._needed(first, period, shared))
        return _Signature(tuple(operands), own, layouts, tuple(self._results(first, period)))

    def _results(self, first: int, period: int) -> list[tuple[int, int]]:
        """Which results are used outside of the layer."""
        after = first + period
        return [
            (offset, number)
            for offset, item in enumerate(self.items[first:after])
            for number in sorted({number for number, at in (*item.readers, *item.binds) if at >= after})
        ]


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _item_size(value: ir.Value) -> int:
    return ITEM_SIZE.get(dtype_of(value), 16)


def _operands(op: ir.Operation) -> list[ir.Value]:
    """The operands of an operation, and of all in its regions."""
    found = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            found += [value for view in block.operations for value in _operands(view.operation)]
    return found
