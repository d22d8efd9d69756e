"""eliminate-implied: removes implied constraints; one that can never hold is an error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import is_subgraph, message_of
from symshape.dialects.conditions import read_condition
from symshape.dialects.locations import source_lines
from symshape.dialects.sizes import Sizes
from symshape.passes.constraints.constraint_facts import Knowledge
from symshape.passes.constraints.constraint_ops import Program, branch_condition, erase_unused, programs
from symshape.passes.constraints.constraint_table import about_sizes, inner_blocks, operations_of, record
from symshape.passes.framework.base import Pass, PassContext, fail
from symshape.prover.numbers.condition import Condition

# What the statistics call those that are removed.
_REMOVED = {"symshape.assume": "assumptions", "symshape.guard": "guards", "symshape.expect_true": "checks"}
# What others are proven with comes first.
_ORDER = {"true": 0, "false": 0, "and": 0, "eq": 1, "ge": 2, "ne": 3, "or": 4}


@dataclass(frozen=True)
class EliminateImplied(Pass):
    """Removes constraints that the facts and the constraints before them imply.

    Before::

        %s0 = "symshape.symbol"() {name = "s0", min = 2, ...} : () -> index
        "symshape.assume"(%s0_le_s1) : (i1) -> ()
        "symshape.expect_true"(%s0_le_s1_plus_1) {message = "a"} : (i1) -> ()     // proven
        "symshape.expect_true"(%u0_ge_4) {message = "b"} : (i1) -> ()
        "symshape.expect_true"(%u0_ge_2) {message = "c"} : (i1) -> ()             // implied by the one before

    After::

        "symshape.assume"(%s0_le_s1) : (i1) -> ()
        "symshape.expect_true"(%u0_ge_4) {message = "b"} : (i1) -> ()

    Which constraints may prove others, so that no check is lost:

    - Ranges of backed symbols and assumptions about inputs hold everywhere. An assumption about a computed value holds
      after it.
    - An expect_true proves only constraints after it in its block or in nested blocks, which run only if it held. It
      proves nothing before it, because there may be effects in between; nor does one in a branch prove anything outside
      of it.
    - The range of an unbacked symbol proves nothing: it was derived from the checks of this very program.
    - A guard is proven by facts and earlier guards only. A failing expect_true is an error, a failing guard selects
      another entry, so an expect_true must not replace a guard.
    - Of assumptions, equalities and tight bounds are kept, and others removed if the prover's fast engine derives them
      from these: lowering and code generation use this engine alone.

    A refuted expect_true is an error if the program always reaches it: in the function's own block. In a branch it
    stays, and raises when it is reached.
    """

    name: ClassVar[str] = "eliminate-implied"
    statistics: ClassVar[dict[str, str]] = {
        "assumptions": "assumptions that follow from others",
        "guards": "guards that always hold",
        "checks": "expect_trues that always hold",
        "kept": "guards and expect_trues that are left",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        changed = False
        for program in programs(module):
            state = _State(context, program)
            trusted = state.assumptions()
            state.block(program.block, program.sizes, trusted, trusted.copy())
            if state.changed:
                erase_unused(program.block)
            self.count(context, **state.counts)
            changed |= state.changed
        return changed


class _State:
    def __init__(self, context: PassContext, program: Program) -> None:
        self.context, self.program, self.changed = context, program, False
        self.counts: Counter[str] = Counter()

    def assumptions(self) -> Knowledge:
        """Keeps the assumptions about inputs that do not follow from the others; returns what holds everywhere."""
        known = Knowledge(self.program.rows)
        found = []
        for name, op in self.program.operations:
            condition = self.program.condition(op) if name == "symshape.assume" else None
            if condition is not None and self.program.holds_at_entry(condition):
                found.append((condition, op))
        for condition, op in sorted(found, key=lambda item: _strongest_first(item[0])):
            if known.proves(condition):
                self.remove(op, condition, "implied")
            else:
                known.assume(condition)
        return known

    def block(self, block: ir.Block, sizes: Sizes, trusted: Knowledge, now: Knowledge) -> None:
        """``trusted``: facts for guards; ``now``: facts at the current operation."""
        for name, op in operations_of(block):
            handler = _HANDLERS.get(name)
            if handler is not None:
                handler(self, op, sizes, trusted, now)
                continue
            for inner in inner_blocks(name, op):
                inner_sizes = sizes.nested(inner)
                inner_sizes.learn(about_sizes(operations_of(inner)))
                inside = branch_condition(op, inner, sizes)
                known = trusted.copy(), now.copy()
                if inside is not None:
                    for knowledge in known:
                        knowledge.assume(inside)
                self.block(inner, inner_sizes, *known)

    def remove(self, op: Any, condition: Condition, status: str) -> None:
        record(self.context, op, condition, status)
        self.counts[_REMOVED[op.name]] += 1
        op.erase()
        self.changed = True

    def assume(self, op: Any, sizes: Sizes, trusted: Knowledge, now: Knowledge) -> None:
        condition = read_condition(sizes, op.operands[0])
        if condition is None or (op.block == self.program.block and self.program.holds_at_entry(condition)):
            return  # the latter are known already
        if trusted.proves(condition):
            self.remove(op, condition, "implied")
        else:
            trusted.assume(condition)
            now.assume(condition)

    def guard(self, op: Any, sizes: Sizes, trusted: Knowledge, now: Knowledge) -> None:
        condition = read_condition(sizes, op.operands[0])
        if condition is None:
            return
        if trusted.follows(condition):
            self.remove(op, condition, "implied")
        else:
            self.counts["kept"] += 1
            trusted.assume(condition)
            now.assume(condition)

    def expect_true(self, op: Any, sizes: Sizes, trusted: Knowledge, now: Knowledge) -> None:
        condition = read_condition(sizes, op.operands[0])
        if condition is None:
            return
        answer = now.answer(condition)
        if answer == "proven":
            self.remove(op, condition, "proven" if trusted.follows(condition) else "implied")
            return
        self.counts["kept"] += 1
        if answer == "unknown":
            now.assume(condition)
        elif op.block == self.program.block and not is_subgraph(op.parent):
            where = ", ".join(source_lines(op.location))
            fail(op, f'can never hold: {condition} is false at every size, "{message_of(op)}" ({where})')


def _strongest_first(condition: Condition) -> tuple[Any, ...]:
    """Equalities, then bounds, the tightest of each form first; the rest as they stand (sorting is stable)."""
    constant = sum(coefficient for coefficient, atoms in condition.expr.terms if not atoms)
    return _ORDER[condition.kind], len(condition.symbols), constant if condition.kind == "ge" else 0


_HANDLERS = {
    "symshape.assume": _State.assume,
    "symshape.guard": _State.guard,
    "symshape.expect_true": _State.expect_true,
}
