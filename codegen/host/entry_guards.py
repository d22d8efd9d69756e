"""Reads the requirements of a compiled graph on its arguments from the last IR: layouts, ranges of symbols, guards.

Under ``torch.compile`` Dynamo has checked all of them before the graph runs. Under ``symshape.jit`` the entry must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from symshape.codegen.host.guard_stub import Constraint
from symshape.dialects import parse_binding, parse_inverse
from symshape.dialects.accessors import message_of, symbol_binding, symbol_name, symbol_range
from symshape.dialects.conditions import condition_of
from symshape.dialects.locations import source_lines
from symshape.dialects.sizes import Layout, Sizes
from symshape.prover.numbers.condition import FALSE, TRUE, Condition, any_of, at_least, equals
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import INT64_MAX, Row
from symshape.prover.solver.condition_store import ConditionStore

_NONE: Mapping[int, Expr] = {}


@dataclass(frozen=True)
class SymbolRange:
    """A symbol, where it is read (``binding`` of ``symshape.symbol``), and the range that the compiled code assumes."""

    name: str
    binding: str
    minimum: int
    maximum: int
    divisor: int


@dataclass(frozen=True)
class EntryGuards:
    """``layouts``: of each argument that is a tensor with strides, else None."""

    layouts: tuple[Layout | None, ...] = ()
    symbols: tuple[SymbolRange, ...] = ()
    guards: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """An input of a jitted function as guards see it: its position in generated code, and its rank (None: an integer).
    ``contiguous``: its strides are contiguous, which is checked separately; ``offset``: its storage offset is
    constrained."""

    position: int
    rank: int | None = None
    contiguous: bool = False
    offset: bool = False
    sizes: tuple[Expr, ...] = field(init=False)
    strides: tuple[Expr, ...] = field(init=False)

    def __post_init__(self) -> None:
        dims = range(self.rank or 0)
        object.__setattr__(self, "sizes", tuple(Expr.symbol(f"size{self.position}_{d}") for d in dims))
        object.__setattr__(self, "strides", tuple(Expr.symbol(f"stride{self.position}_{d}") for d in dims))

    @property
    def storage_offset(self) -> Expr:
        return Expr.symbol(f"offset{self.position}")

    @property
    def value(self) -> Expr:
        """The value of an integer."""
        return Expr.symbol(f"int{self.position}")

    def reading(self, kind: str, dim: int) -> Expr:
        """The expression for a symbol's binding."""
        if kind in ("size", "stride"):
            return (self.sizes if kind == "size" else self.strides)[dim]
        return self.storage_offset if kind == "offset" else self.value


def read_entry(block: ir.Block, sizes: Sizes) -> EntryGuards:
    """The requirements of a main function; ``sizes`` must have learned its operations."""
    operations = [view.operation for view in block.operations]
    symbols = tuple(_symbol(op) for op in operations if op.name == "symshape.symbol")
    guards = []
    for op in operations:
        if op.name == "symshape.guard":
            lines = "\n".join(source_lines(op.location))
            guards.append(Constraint(condition_of(sizes, op.operands[0]), message_of(op), lines))
    return EntryGuards(tuple(sizes.layouts.get(a) for a in block.arguments), symbols, tuple(guards))


def _symbol(op: Any) -> SymbolRange:
    return SymbolRange(symbol_name(op), symbol_binding(op), *symbol_range(op))


def leaf_constraints(
    entry: EntryGuards, leaves: Sequence[Leaf], integers: Mapping[int, Expr] = _NONE
) -> list[Constraint]:
    """All requirements on the inputs, over the readings of ``leaves``: one for each argument, in order.

    ``integers``: the value of integer inputs by position, over the entry's symbols, where known.
    """
    readings = {symbol.name: _reading(symbol.binding, leaves) for symbol in entry.symbols}
    found: list[Constraint] = []
    for leaf, layout in zip(leaves, entry.layouts):
        if leaf.position in integers:
            found.append(Constraint(equals(leaf.value, integers[leaf.position].substitute(readings))))
        elif layout is not None:
            found += _layout_constraints(leaf, layout, readings)
    for symbol in entry.symbols:
        found += _range_constraints(readings[symbol.name], symbol)
    for guard in entry.guards:
        found.append(Constraint(guard.condition.substitute(readings), guard.message, guard.location))
    return [constraint for constraint in found if constraint.condition != TRUE]


def minimal(constraints: Sequence[Constraint], leaves: Sequence[Leaf]) -> list[Constraint]:
    """A list of constraints that is equivalent to the given ones for sizes >= 0, none implied by the others. A
    constraint that replaces several has the message and the lines of the first that has any.

    Constraints that fix a symbol that no other one mentions (a size of a parameter), and those on floats, are kept as
    they are.
    """
    mentions = Counter(name for constraint in constraints for name in constraint.condition.symbols)

    def is_alone(condition: Condition) -> bool:
        return condition.kind == "eq" and all(mentions[name] == 1 for name in condition.symbols)

    alone = [c for c in constraints if is_alone(c.condition) or c.condition.has_reals]
    kept = frozenset(map(id, alone))
    rest = [constraint for constraint in constraints if id(constraint) not in kept]
    store = ConditionStore()
    for size in dict.fromkeys(size for leaf in leaves for size in leaf.sizes):
        if size.python() in mentions:
            store.symbol(size.python(), Row(0, None))
    merged = store.minimise((constraint.condition, (constraint,)) for constraint in rest)
    return [*alone, *(_spoken_for(item.condition, item.origins) for item in merged)]


def _spoken_for(condition: Condition, origins: Sequence[Constraint]) -> Constraint:
    same = [origin for origin in origins if origin.condition == condition] or origins
    first = next((origin for origin in same if origin.location), same[0])
    return Constraint(condition, first.message, first.location)


def _reading(binding: str, leaves: Sequence[Leaf]) -> Expr:
    read = parse_binding(binding)
    assert read is not None, binding
    position, part, dim = read
    rest, factor = parse_inverse(binding)
    return (leaves[position].reading(part, dim) - rest) // factor


def _layout_constraints(leaf: Leaf, layout: Layout, readings: Mapping[str, Expr]) -> list[Constraint]:
    """The requirements on a tensor's layout. The stride of a dim of size 0 or 1 may be any, and so may those of a
    tensor without elements; in contiguous strides a size of 0 counts as 1."""
    sizes = [size.substitute(readings) for size in layout.sizes]
    found = list(map(equals, leaf.sizes, sizes))
    is_empty = any(size.as_int() == 0 for size in sizes)
    for dim, stride in enumerate(() if is_empty else layout.strides):
        expected = stride.substitute(readings)
        if not (leaf.contiguous and expected == product(sizes[dim + 1 :])):
            is_long = (sizes[dim].as_int() or 0) > 1
            is_any = FALSE if is_long else at_least(1, leaf.sizes[dim])
            empty = [at_least(0, size) for size in leaf.sizes if size.symbols and size.symbols <= expected.symbols]
            found.append(any_of(is_any, *empty, equals(leaf.strides[dim], expected)))
    if leaf.offset or layout.offset.as_int() is None:
        found.append(equals(leaf.storage_offset, layout.offset.substitute(readings)))
    return [Constraint(condition) for condition in found]


def _range_constraints(reading: Expr, symbol: SymbolRange) -> list[Constraint]:
    found = []
    if symbol.minimum > -INT64_MAX:
        found.append(Constraint(at_least(reading, symbol.minimum)))
    if symbol.maximum < INT64_MAX:
        found.append(Constraint(at_least(symbol.maximum, reading)))
    if symbol.divisor > 1:
        found.append(Constraint(equals(reading % symbol.divisor, 0)))
    return found
