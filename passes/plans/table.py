"""The table of variants in a kernel's function, as plain rows that passes change and write back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects.conditions import emit_condition, emit_multiples, read_condition
from symshape.dialects.plans import PROCESSORS, PlanSizes
from symshape.dialects.symshape import attribute
from symshape.passes.base import PassContext
from symshape.passes.plans.kernel import PlanKernel, kernels, read_plan_kernel
from symshape.prover.atoms import Function
from symshape.prover.condition import FALSE, TRUE, Condition, all_of, at_least, equals
from symshape.prover.decided import decided
from symshape.prover.expr import Expr
from symshape.prover.facts import Facts

MOST_VARIANTS: Final = 8
ALIGNMENT: Final = 16  # bytes of the widest access, and what Triton takes numbers to be multiples of
_ATTRIBUTES: Final = ("name", "form", "xblock", "yblock", "rblock", "num_warps", "index_bits", "aligned", "dims")


@dataclass(frozen=True)
class Row:
    """One ``symshape.variant``, with its fields; ``op`` is the one it was read from."""

    name: str
    form: str
    condition: Condition
    xblock: int
    yblock: int = 0
    rblock: int = 0
    num_warps: int = 4
    index_bits: int = 64
    aligned: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    splits: Expr | None = None
    op: Any = field(default=None, compare=False)

    @property
    def base(self) -> str:
        """The name without what alignment and index width add to it."""
        return self.name.removesuffix("_wide").removesuffix("_aligned")


class Table:
    """The table of one kernel function. ``rows`` may be replaced; ``write`` brings the function up to date."""

    def __init__(self, function: Any, context: PassContext) -> None:
        self.block = function.regions[0].blocks[0]
        self.sizes = PlanSizes(self.block)
        self._conditions: dict[Condition, ir.Value] = {}
        self._tests: list[Any] = []  # operations that make conditions
        self._i1 = ir.IntegerType.get_signless(1)
        variants = []
        for view in self.block.operations:
            op = view.operation
            if op.name == "symshape.variant":
                variants.append(op)
            elif not self.sizes.read(op) and op.name.startswith("arith."):
                self._read_test(op)
        self._last = self.block.operations[len(self.block.operations) - 1].operation
        self.kernel: PlanKernel = read_plan_kernel(function, self.sizes, context)
        self._old = [self._read(op) for op in variants]
        self.rows: list[Row] = list(self._old) or [general(self.kernel)]

    def _read_test(self, op: Any) -> None:
        type_ = op.results[0].type
        if type_ == self.sizes.index_type:  # low bits of several values
            self._tests.append(op)
            return
        condition = read_condition(self.sizes, op.results[0]) if type_ == self._i1 else None
        if condition is not None:
            self._conditions.setdefault(condition, op.results[0])
            self._tests.append(op)

    def _read(self, op: Any) -> Row:
        attributes = op.attributes
        fields: dict[str, Any] = {}
        for name in _ATTRIBUTES:
            value = attributes[name]
            if isinstance(value, ir.ArrayAttr):
                fields[name] = tuple(ir.StringAttr(a).value for a in value)
            else:
                fields[name] = value.value
        condition, *splits = op.operands
        expr = self.sizes.expr(splits[0]) if splits else None
        return Row(condition=self.sizes.condition(condition), splits=expr, op=op, **fields)

    def write(self) -> bool:
        """Writes the rows that can occur; False where the function has them already."""
        rows = pruned(self.rows, self.kernel.facts)
        if rows == self._old:
            return False
        kept = {id(row.op) for row in rows}
        for row in self._old:
            if id(row.op) not in kept:
                row.op.erase()
        old = {id(row.op): row for row in self._old}
        with ir.InsertionPoint(self._last), self._last.location:
            for row in rows:
                if row.op is None:
                    self._create(row)
                else:
                    self._update(row, old[id(row.op)])
        for op in reversed(self._tests):
            if next(iter(op.results[0].uses), None) is None:
                op.erase()
        return True

    def _create(self, row: Row) -> None:
        operands = [self._condition(row.condition)]
        operands += [] if row.splits is None else [self.sizes.value(row.splits)]
        attributes = {name: attribute(getattr(row, name)) for name in _ATTRIBUTES}
        ir.Operation.create("symshape.variant", [], operands, attributes)

    def _update(self, row: Row, old: Row) -> None:
        if row.condition != old.condition:
            row.op.operands[0] = self._condition(row.condition)
        for name in _ATTRIBUTES:
            if getattr(row, name) != getattr(old, name):
                row.op.attributes[name] = attribute(getattr(row, name))
        row.op.move_before(self._last)

    def _condition(self, condition: Condition) -> ir.Value:
        """The value of a condition; its parts are shared among the rows."""
        found = self._conditions.get(condition)
        if found is None:
            if condition.kind == "and":
                found = self._conjunction(condition)
            else:
                found = emit_condition(self.sizes, condition)
            self._conditions[condition] = found
        return found

    def _conjunction(self, condition: Condition) -> ir.Value:
        """Joined from the end: rows differ in their first parts. What must divide by 16 is tested together."""
        bases = [base for part in condition.operands if (base := multiple_of(part)) is not None]
        parts = [part for part in condition.operands if multiple_of(part) is None]
        if bases:
            test = all_of(*map(divides, bases))
            if test not in self._conditions:
                self._conditions[test] = emit_multiples(self.sizes, bases, ALIGNMENT)
            parts.append(test)
        result, joined = self._condition(parts[-1]), parts[-1]
        for part in reversed(parts[:-1]):
            joined = all_of(part, joined)
            if joined not in self._conditions:
                values = [self._condition(part), result]
                self._conditions[joined] = ir.Operation.create("arith.andi", [self._i1], values).result
            result = self._conditions[joined]
        return result


def tables(module: ir.Module, context: PassContext) -> list[Table]:
    """The tables of all kernels; none where the target chooses in its own code."""
    if context.options.get("target") == "cpu":
        return []
    return [Table(function, context) for function in kernels(module)]


def write_all(changed: Sequence[Table]) -> bool:
    """Writes every table; whether anything has changed."""
    written = [table.write() for table in changed]
    return any(written)


def general(kernel: PlanKernel) -> Row:
    """What is right at every size."""
    if kernel.reduced:
        return Row("looped", "looped", TRUE, 1, rblock=1024, num_warps=8)
    return Row("block512", "pointwise", TRUE, 512)


def pruned(rows: Sequence[Row], facts: Facts) -> list[Row]:
    """The rows that can be taken, with what is left of their conditions."""
    kept: list[Row] = []
    for row in rows:
        condition = remaining(row.condition, facts)
        if condition != FALSE:
            kept.append(row if condition == row.condition else replace(row, condition=condition))
        if condition == TRUE:
            break
    return kept


def remaining(condition: Condition, facts: Facts) -> Condition:
    """The condition without the parts that always hold; FALSE where one never does."""
    parts = condition.operands if condition.kind == "and" else (condition,)
    left = []
    for part in parts:
        answer = decided(facts, part) if _is_simple(part.expr) else None
        if answer is False:
            return FALSE
        left += [part] if answer is None else []
    return all_of(*left)


def _is_simple(expr: Expr) -> bool:
    """Worth a proof: what max, min and divisions of products say is rarely known."""
    return all(not isinstance(a, Function) or a.kind == "mod" for _, atoms in expr.terms for a in atoms)


def divides(expr: Expr) -> Condition:
    """Whether it is a multiple of 16."""
    return equals(expr % ALIGNMENT, 0)


def multiple_of(condition: Condition) -> Expr | None:
    """e of a condition e % 16 == 0."""
    if condition.kind != "eq" or len(condition.expr.terms) != 1:
        return None
    ((coefficient, atoms),) = condition.expr.terms
    atom: Any = atoms[0] if coefficient == 1 and len(atoms) == 1 else None
    return atom.args[0] if getattr(atom, "kind", "") == "mod" and atom.args[1] == ALIGNMENT else None


def processors() -> Expr:
    """How many the device has."""
    return Expr.symbol(PROCESSORS)


def at_most(expr: Expr, limit: Expr | int) -> Condition:
    """expr <= limit."""
    return at_least(limit, expr)
