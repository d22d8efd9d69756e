"""Finds, writes and merges constraint operations, and keeps their locations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import message_of, set_message
from symshape.dialects.conditions import JOIN, PREDICATES, emit_condition, read_condition, sides_of
from symshape.dialects.locations import parts_of
from symshape.dialects.sizes import Sizes
from symshape.passes.constraints.constraint_facts import Knowledge, backed_symbols, trusted_rows
from symshape.passes.constraints.constraint_table import (
    KINDS,
    about_sizes,
    inner_blocks,
    main_blocks,
    operations_of,
)
from symshape.prover.numbers.condition import Condition, negation


class Program:
    """A function's entry block, if it or a nested block has constraints, and the facts at its start."""

    def __init__(self, block: ir.Block, operations: list[tuple[str, Any]]) -> None:
        self.block, self.operations = block, operations
        self.about_sizes = about_sizes(operations)
        self.rows = trusted_rows(self.about_sizes)
        self.backed = backed_symbols(self.about_sizes)
        self.sizes = Sizes(block)
        self.sizes.learn(self.about_sizes)

    def condition(self, op: Any) -> Condition | None:
        """The condition of a constraint of this block; None if it is not about sizes."""
        return read_condition(self.sizes, op.operands[0])

    def holds_at_entry(self, condition: Condition) -> bool:
        """Whether an assumption with this condition is a fact everywhere: only one about inputs is. One about a
        computed value is a fact after it only: code before it may have run without reaching it."""
        return condition.symbols <= self.backed

    def trusted(self) -> Knowledge:
        """The ranges of symbols, and assumptions about inputs."""
        known = Knowledge(self.rows)
        for name, op in self.operations:
            condition = self.condition(op) if name == "symshape.assume" else None
            if condition is not None and self.holds_at_entry(condition):
                known.assume(condition)
        return known


def programs(module: ir.Module, kinds: frozenset[str] | None = KINDS) -> Iterator[Program]:
    """The functions with such operations (None: all); the others need no pass. Kernels have no constraints."""
    for block in main_blocks(module):
        operations = operations_of(block)
        if kinds is None or _has_any(operations, kinds):
            yield Program(block, operations)


def _has_any(operations: list[tuple[str, Any]], kinds: frozenset[str]) -> bool:
    return any(
        name in kinds or any(_has_any(operations_of(inner), kinds) for inner in inner_blocks(name, op))
        for name, op in operations
    )


def branch_condition(op: Any, inner: ir.Block, sizes: Sizes) -> Condition | None:
    """The condition that holds inside a block of ``scf.if``; None if it is not about sizes, or the operation is another
    one."""
    if op.name != "scf.if":
        return None
    condition = read_condition(sizes, op.operands[0])
    if condition is None or inner == op.regions[0].blocks[0]:
        return condition
    return negation(condition)


def merge(kept: Any, other: Any) -> None:
    """Adds the other constraint's locations to ``kept``, and its message if it differs."""
    kept.location = ir.Location.fused(parts_of(kept.location) + parts_of(other.location))
    texts = dict.fromkeys([*message_of(kept).split("; "), *message_of(other).split("; ")])
    if kept.name != "symshape.assume":
        set_message(kept, "; ".join(texts))


def create(op: Any, condition: ir.Value) -> Any:
    """The same constraint with another condition, at the current insertion point."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    return ir.Operation.create(op.name, [], [condition], attributes, loc=op.location)


def erase_unused(block: ir.Block) -> None:
    """Erases unused arithmetic on sizes. No Python object may hold its values any more."""
    for name, op in reversed(operations_of(block)):
        if name.startswith("arith.") and not is_used(op):
            op.erase()
        else:
            for inner in inner_blocks(name, op):
                erase_unused(inner)


def is_used(op: Any) -> bool:
    return any(True for result in op.results for _ in result.uses)


class ConditionWriter:
    """Emits conditions, with common subexpressions once; ``sizes`` must be of the same block."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._values: dict[Condition, ir.Value] = {}

    def nested(self, block: ir.Block) -> ConditionWriter:
        inner = ConditionWriter(self.sizes.nested(block))
        inner._values = dict(self._values)
        return inner

    def value(self, condition: Condition) -> ir.Value:
        """The SSA value of a condition, written at the current insertion point if it is new."""
        if condition not in self._values:
            self._values[condition] = self._write(condition)
        return self._values[condition]

    def is_written_as(self, condition: Condition, value: ir.Value) -> bool:
        """Whether the value is what ``value`` would write; it is then used for the next one like it."""
        op: Any = value.owner
        if isinstance(op, ir.Block) or condition.kind in ("true", "false"):
            return not isinstance(op, ir.Block) and op.name == "arith.constant"
        if condition in self._values:
            return bool(self._values[condition] == value)
        if not self._has_form(condition, op):
            return False
        self._values[condition] = value
        return True

    def _has_form(self, condition: Condition, op: Any) -> bool:
        if condition.kind in ("and", "or"):
            if op.name != JOIN[condition.kind]:
                return False
            *first, last = condition.operands
            rest = first[0] if len(first) == 1 else Condition(condition.kind, operands=tuple(first))
            return self.is_written_as(rest, op.operands[0]) and self.is_written_as(last, op.operands[1])
        if op.name != "arith.cmpi":
            return False
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        sides = sides_of(condition.expr)
        return predicate == PREDICATES[condition.kind] and all(
            value in self.sizes and self.sizes.expr(value) == side and self.sizes.value(side) == value
            for value, side in zip(op.operands, sides)
        )

    def _write(self, condition: Condition) -> ir.Value:
        if condition.kind not in ("and", "or"):
            return emit_condition(self.sizes, condition)
        values = [self.value(part) for part in condition.operands]
        result = values[0]
        for value in values[1:]:
            result = ir.Operation.create(JOIN[condition.kind], [value.type], [result, value]).result
        return result
