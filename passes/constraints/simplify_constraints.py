"""simplify-constraints: brings constraints to canonical form, one for each conjunct, without duplicates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.conditions import read_condition
from symshape.dialects.sizes import Sizes
from symshape.passes.constraints.constraint_facts import Knowledge, parts_of
from symshape.passes.constraints.constraint_ops import ConditionWriter, Program, create, erase_unused, merge, programs
from symshape.passes.constraints.constraint_table import KINDS, about_sizes, inner_blocks, operations_of, record
from symshape.passes.framework.base import Pass, PassContext
from symshape.prover.numbers.condition import Condition

Seen = dict[tuple[str, Condition], Any]  # (op name, condition) -> the constraint that says it


@dataclass(frozen=True)
class SimplifyConstraints(Pass):
    """Brings constraints into canonical form, splits conjunctions, and merges duplicates.

    Before::

        %0 = arith.muli %s0, %c8 : index
        %1 = arith.muli %s1, %c2 : index
        %2 = arith.cmpi sgt, %1, %0 : index
        %3 = arith.cmpi slt, %0, %1 : index
        %4 = arith.andi %3, %even : i1
        "symshape.expect_true"(%2) {message = "a"} : (i1) -> () loc("model.py":7:1)
        "symshape.expect_true"(%4) {message = "b"} : (i1) -> () loc("model.py":9:1)

    After::

        %0 = arith.muli %s0, %c4 : index
        %1 = arith.addi %0, %c1 : index
        %2 = arith.cmpi sge, %s1, %1 : index
        "symshape.expect_true"(%2) {message = "a; b"} : (i1) -> () loc(fused["model.py":7:1, "model.py":9:1])
        "symshape.expect_true"(%even) {message = "b"} : (i1) -> () loc("model.py":9:1)

    Expressions are simplified under the ranges of backed symbols; those of expect_true and guard also under the
    assumptions about inputs (an assumption would simplify itself to true). Merged constraints keep every location and
    every message, and the position of the first; a constraint in a branch is merged with those of its block only.
    """

    name: ClassVar[str] = "simplify-constraints"
    statistics: ClassVar[dict[str, str]] = {
        "rewritten": "constraints that were written anew, each conjunct by itself",
        "merged": "conjuncts that an earlier constraint says already",
        "proven": "constraints that hold at every size",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        changed = False
        for program in programs(module):
            state = _State(context, program)
            state.block(program.block, ConditionWriter(Sizes(program.block)), {})
            if state.changed:
                erase_unused(program.block)
            self.count(context, **state.counts)
            changed |= state.changed
        return changed


class _State:
    def __init__(self, context: PassContext, program: Program) -> None:
        self.context, self.changed = context, False
        self.counts: Counter[str] = Counter()
        self.rows = Knowledge(program.rows)
        self.trusted = program.trusted()

    def block(self, block: ir.Block, writer: ConditionWriter, seen: Seen) -> None:
        for op in about_sizes(operations_of(block)):
            if writer.sizes.read(op):
                continue
            name = op.name
            if name in KINDS:
                self.constraint(op, writer, seen)
                continue
            for inner in inner_blocks(name, op):
                self.block(inner, writer.nested(inner), {})

    def constraint(self, op: Any, writer: ConditionWriter, seen: Seen) -> None:
        condition = read_condition(writer.sizes, op.operands[0])
        if condition is None:
            return
        known = self.rows if op.name == "symshape.assume" else self.trusted
        simple = known.simplify(condition)
        parts = parts_of(simple)
        if len(parts) == 1 and (op.name, simple) not in seen and writer.is_written_as(simple, op.operands[0]):
            seen[op.name, simple] = op
            return
        self.changed = True
        if not parts:
            record(self.context, op, condition, "proven")
            self.counts["proven"] += 1
        for part in parts:
            if (op.name, part) in seen:
                merge(seen[op.name, part], op)
                self.counts["merged"] += 1
                continue
            with ir.InsertionPoint(op), op.location:
                seen[op.name, part] = create(op, writer.value(part))
            self.counts["rewritten"] += 1
        op.erase()
