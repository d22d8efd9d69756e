"""The table of variants in a kernel's function: read as plain rows, which passes change and write back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch_mlir import ir

from symshape.analysis.access_patterns import KernelAccesses, read_accesses
from symshape.analysis.loop_form import LoopSteps, read_loops
from symshape.analysis.loops import LoopKernel
from symshape.dialects.accessors import function_name, kernel_functions, kernel_kind
from symshape.dialects.conditions import emit_condition, emit_multiples, read_condition
from symshape.dialects.plans import ALIGNMENT, PROCESSORS, VARIANT_FIELDS, PlanSizes, divides, multiple_of
from symshape.dialects.symshape import attribute
from symshape.passes.framework.base import LOOPS, PassContext
from symshape.prover.numbers.atoms import Function
from symshape.prover.numbers.condition import FALSE, TRUE, Condition, all_of, at_least
from symshape.prover.numbers.expr import Expr

MOST_VARIANTS: Final = 44


@dataclass(frozen=True)
class Row:
    """One ``symshape.variant`` with its fields; ``op`` is the operation it was read from, None if new."""

    name: str
    form: str
    condition: Condition
    xblock: int
    yblock: int = 0
    rblock: int = 0
    num_warps: int = 4
    num_stages: int = 1
    one_launch: bool = False
    index_bits: int = 64
    aligned: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    splits: Expr | None = None
    op: Any = field(default=None, compare=False)

    @property
    def base(self) -> str:
        """The name without suffixes for alignment and index width."""
        return self.name.removesuffix("_wide").removesuffix("_aligned")


class Table:
    """The table of one kernel function. Passes replace ``rows``; ``write`` updates the function."""

    def __init__(self, function: Any, loops: LoopKernel, attributes: dict[Any, ir.Attribute]) -> None:
        self.block = function.regions[0].blocks[0]
        self.sizes = PlanSizes(self.block)
        self.operations = [view.operation for view in self.block.operations]
        self._attributes = attributes
        self._i1 = ir.IntegerType.get_signless(1)
        self._conditions: dict[Condition, ir.Value] = {}
        self._made: dict[Condition, tuple[Condition, ...]] = {}  # conditions written here, with those they combine
        variants = []
        for op in self.operations:
            if op.name == "symshape.variant":
                variants.append(op)
            elif not self.sizes.read(op) and op.name.startswith("arith.") and op.results[0].type == self._i1:
                condition = read_condition(self.sizes, op.results[0])
                if condition is not None:
                    self._conditions.setdefault(condition, op.results[0])
        self.kernel, self.mixed = read_accesses(loops), loops.mixed is not None
        self._old = [self._read(op) for op in variants]
        self.rows: list[Row] = list(self._old) or [general(self.kernel)]

    def _read(self, op: Any) -> Row:
        fields: dict[str, Any] = {}
        for name in VARIANT_FIELDS:
            value = op.attributes[name]
            is_array = isinstance(value, ir.ArrayAttr)
            fields[name] = tuple(ir.StringAttr(a).value for a in value) if is_array else value.value
        condition, *splits = op.operands
        expr = self.sizes.expr(splits[0]) if splits else None
        return Row(condition=self.sizes.condition(condition), splits=expr, op=op, **fields)

    def write(self) -> list[ir.Operation]:
        """Writes the rows that can be taken; returns the new and changed variants, which must be verified."""
        rows = pruned(self.rows, self.kernel)
        if rows == self._old:
            return []
        kept = {id(row.op) for row in rows}
        for row in self._old:
            if id(row.op) not in kept:
                row.op.erase()
        old = {id(row.op): row for row in self._old}
        changed = []
        with ir.InsertionPoint(self.operations[-1]), self.operations[-1].location:
            for i, row in enumerate(rows):
                if row.op is None:
                    rows[i] = replace(row, op=self._create(row))
                else:
                    self._update(row, old[id(row.op)])
                if row != old.get(id(row.op)):
                    changed.append(rows[i].op)
        self.rows = self._old = rows
        self._sweep()
        return changed

    def _create(self, row: Row) -> Any:
        operands = [self._condition(row.condition)]
        operands += [] if row.splits is None else [self.sizes.value(row.splits)]
        attributes = {name: self._attribute(getattr(row, name)) for name in VARIANT_FIELDS}
        return ir.Operation.create("symshape.variant", [], operands, attributes)

    def _update(self, row: Row, old: Row) -> None:
        if row.condition != old.condition:
            row.op.operands[0] = self._condition(row.condition)
        for name in VARIANT_FIELDS:
            if getattr(row, name) != getattr(old, name):
                row.op.attributes[name] = self._attribute(getattr(row, name))
        row.op.move_before(self.operations[-1])

    def _attribute(self, value: Any) -> ir.Attribute:
        key = type(value), value  # False is no 0
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = attribute(value)
        return found

    def _condition(self, condition: Condition) -> ir.Value:
        """The IR value of a condition. Rows share the values of common parts."""
        found = self._conditions.get(condition)
        if found is not None:
            return found
        if condition.kind == "and" or multiple_of(condition) is not None:
            return self._conjunction(condition)
        return self._keep(condition, emit_condition(self.sizes, condition))

    def _conjunction(self, condition: Condition) -> ir.Value:
        """The IR value of a conjunction, built from its end, since rows differ in their first parts. All tests for
        multiples of 16 are one test."""
        operands = condition.operands or (condition,)
        bases = [base for part in operands if (base := multiple_of(part)) is not None]
        parts = [part for part in operands if multiple_of(part) is None]
        if bases:
            test = all_of(*map(divides, bases))
            if test not in self._conditions:
                self._keep(test, emit_multiples(self.sizes, bases, ALIGNMENT))
            parts.append(test)
        joined = parts[-1]
        result = self._condition(joined)
        for part in reversed(parts[:-1]):
            whole = all_of(part, joined)
            if whole not in self._conditions:
                values = [self._condition(part), result]
                self._keep(whole, ir.Operation.create("arith.andi", [self._i1], values).result, part, joined)
            result, joined = self._conditions[whole], whole
        return result

    def _keep(self, condition: Condition, value: ir.Value, *parts: Condition) -> ir.Value:
        self._conditions[condition], self._made[condition] = value, parts
        return value

    def _sweep(self) -> None:
        """Erases conditions that no row uses any longer."""
        needed: set[Condition] = set()
        pending = [row.condition for row in self.rows]
        for row in self.rows:
            bases = [part for part in row.condition.operands if multiple_of(part) is not None]
            rest = [part for part in row.condition.operands if multiple_of(part) is None]
            pending += [all_of(*rest, *bases)] if bases else []
        while pending:
            condition = pending.pop()
            if condition not in needed:
                needed.add(condition)
                pending += self._made.get(condition, ())
        for condition in [c for c in reversed(self._made) if c not in needed]:
            self._conditions.pop(condition).owner.erase()
            del self._made[condition]


def tables(module: ir.Module, context: PassContext) -> list[Table]:
    """The tables of all planned kernels.

    Consecutive planning passes share them through ``context.scratch``, which the pass manager clears when another pass
    has run. The loop programs read for them are kept for code generation.
    """
    if "tables" not in context.scratch:
        attributes: dict[Any, ir.Attribute] = {}
        steps = LoopSteps(context.disabled)
        loops = context.scratch[LOOPS] = {function_name(f): read_loops(f, steps) for f in _planned(module)}
        context.scratch["tables"] = [Table(f, loops[function_name(f)], attributes) for f in _planned(module)]
    return list(context.scratch["tables"])


def _planned(module: ir.Module) -> list[Any]:
    """The kernels whose variants are planned: all but scatters, whose variants code generation decides."""
    return [function for function in kernel_functions(module) if kernel_kind(function) != "scatter"]


def write_all(planned: Iterable[Table]) -> list[ir.Operation]:
    """Writes all tables; returns the operations to be verified."""
    return [op for table in planned for op in table.write()]


def general(kernel: KernelAccesses) -> Row:
    """The default variant, which is valid at every size."""
    if kernel.reduced:
        return Row("looped", "looped", TRUE, 1, rblock=1024, num_warps=8)
    return Row("block512", "pointwise", TRUE, 512)


def pruned(rows: Sequence[Row], kernel: KernelAccesses) -> list[Row]:
    """The rows that can be taken, up to one that always is, with conditions simplified."""
    kept: list[Row] = []
    for row in rows:
        condition = remaining(row.condition, kernel)
        if condition != FALSE:
            kept.append(row if condition == row.condition else replace(row, condition=condition))
        if condition == TRUE:
            break
    return kept


def remaining(condition: Condition, kernel: KernelAccesses) -> Condition:
    """The condition without parts that always hold; FALSE if a part never holds."""
    parts = condition.operands if condition.kind == "and" else (condition,)
    left = []
    for part in parts:
        answer = kernel.decided(part) if _is_simple(part.expr) else None
        if answer is False:
            return FALSE
        left += [part] if answer is None else []
    return all_of(*left)


def _is_simple(expr: Expr) -> bool:
    """Whether a proof is worth trying: conditions with max, min or division are rarely decided, and plan-alignment
    proves alignment itself."""
    return not any(isinstance(atom, Function) for atom in expr.atoms)


def processors() -> Expr:
    """The device's number of multiprocessors, as a symbol."""
    return Expr.symbol(PROCESSORS)


def at_most(expr: Expr, limit: Expr | int) -> Condition:
    """The condition ``expr <= limit``."""
    return at_least(limit, expr)


def row_bytes(kernel: KernelAccesses) -> int:
    """Bytes that are read per reduced point."""
    names = {d.name for d in kernel.reduced}
    read = {a.arg for a in kernel.accesses if not a.store and not a.row and not names.isdisjoint(a.address.symbols)}
    return max(1, sum(kernel.arguments[arg].bits // 8 for arg in read))
