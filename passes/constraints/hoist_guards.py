"""hoist-guards: moves checks before all work that they do not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import set_status
from symshape.dialects.conditions import read_condition
from symshape.dialects.sizes import Sizes
from symshape.errors import OptionError
from symshape.passes.constraints.constraint_facts import Knowledge, divisors_of
from symshape.passes.constraints.constraint_ops import (
    ConditionWriter,
    Program,
    branch_condition,
    create,
    erase_unused,
    merge,
    programs,
)
from symshape.passes.constraints.constraint_table import KINDS, about_sizes, inner_blocks, operations_of
from symshape.passes.framework.base import Pass, PassContext
from symshape.prover.numbers.condition import Condition, any_of, negation
from symshape.prover.numbers.expr import Expr

_CHECKS = frozenset({"symshape.expect_true", "symshape.guard"})
_NO_WORK = KINDS | {"symshape.symbol", "symshape.bind"}  # besides arithmetic
_COMPARED = 8  # how many checks of the same symbols a check is compared with, to find one that covers it


@dataclass(frozen=True)
class HoistGuards(Pass):
    """Moves expect_true and guard up: to the entry if only sizes of inputs are needed, else behind the computed value.

    Before::

        %y = "host.call"(%x, %w) {target = "aten.mm.default", ...}
        "symshape.expect_true"(%s0_le_s1) {message = "a"} : (i1) -> ()
        scf.if %s0_is_1 {
          "symshape.expect_true"(%s1_ge_4) {message = "b"} : (i1) -> ()
        }

    After::

        "symshape.expect_true"(%s0_le_s1) {message = "a", symshape.status = "hoisted"} : (i1) -> ()
        %0 = arith.ori %s0_is_not_1, %s1_ge_4 : i1
        "symshape.expect_true"(%0) {message = "b", symshape.status = "hoisted"} : (i1) -> ()
        %y = "host.call"(%x, %w) {target = "aten.mm.default", ...}
        scf.if %s0_is_1 {
        }

    Checks that are moved to one place keep their order. A check moves out of a branch as an implication: not(condition
    of the branch) or check. A check that divides by a value that may be zero stays behind the check that excludes zero.
    Of two checks with no work between them, one that implies the other takes over its locations and its message.

    ``to``  "earliest" (the default), or "entry": only checks that can move all the way to the entry are moved.
    """

    name: ClassVar[str] = "hoist-guards"
    statistics: ClassVar[dict[str, str]] = {
        "out_of_branches": "checks that left a branch, as an implication",
        "hoisted": "checks that were moved up, before work",
        "merged": "checks that one which covers them took over",
    }
    to: str = "earliest"

    def run(self, module: ir.Module, context: PassContext) -> bool:
        if self.to not in ("earliest", "entry"):
            raise OptionError(f"pass '{self.name}': option 'to' cannot be '{self.to}'", next_step="earliest or entry")
        counts = {"out_of_branches": 0, "hoisted": 0, "merged": 0}
        for program in programs(module, _CHECKS):
            mover = _Mover(program, self.to)
            counts["out_of_branches"] += mover.out_of_branches(program.block, ConditionWriter(Sizes(program.block)))
            counts["hoisted"] += mover.move_up()
            counts["merged"] += mover.merge_covered()
            if any(counts.values()):
                erase_unused(program.block)
        self.count(context, **counts)
        return any(counts.values())


class _Mover:
    def __init__(self, program: Program, to: str) -> None:
        self.block, self.to = program.block, to
        self.rows, self.known = program.rows, program.trusted()

    def is_safe(self, condition: Condition) -> bool:
        """Whether a condition can be computed anywhere: no divisor in it can be 0."""
        return all(self.known.never_zero(divisor) for divisor in divisors_of(condition))

    # Out of branches.

    def out_of_branches(self, block: ir.Block, writer: ConditionWriter) -> int:
        """Moves checks out of branches; returns their number."""
        moved = 0
        for op in about_sizes(operations_of(block)):
            if writer.sizes.read(op):
                continue
            for inner in inner_blocks(op.name, op):
                inside = writer.nested(inner)
                moved += self.out_of_branches(inner, inside)
                branch = branch_condition(op, inner, writer.sizes)
                if branch is not None:
                    moved += self.out_of_branch(op, inner, inside, branch, writer)
        return moved

    def out_of_branch(
        self, op: Any, inner: ir.Block, inside: ConditionWriter, branch: Condition, writer: ConditionWriter
    ) -> int:
        moved = 0
        for name, check in operations_of(inner):
            condition = read_condition(inside.sizes, check.operands[0]) if name in _CHECKS else None
            if condition is None or not self.is_safe(condition):
                continue
            implication = any_of(negation(branch), condition)
            if all(Expr.symbol(name) in writer.sizes for name in implication.symbols):
                with ir.InsertionPoint(op), check.location:
                    _mark(create(check, writer.value(implication)))
                check.erase()
                moved += 1
        return moved

    # Up.

    def move_up(self) -> int:
        """Moves checks up; returns the number of moved ones."""
        order = _Order(self.block)
        moved = 0
        for at, (name, op) in enumerate(order.operations):
            if name not in _CHECKS:
                continue
            arithmetic, roots = order.needed_by(op)
            at_entry = all(order.operations[root][0] == "symshape.symbol" for root in roots)
            if self.to == "entry" and not at_entry:
                continue
            anchor = order.last_symbol if at_entry else max(roots)
            if order.works[at] == order.works[anchor + 1]:
                continue  # there is no work in between
            condition = read_condition(order.sizes, op.operands[0])
            if condition is not None and self.is_safe(condition):
                order.move(op, arithmetic, anchor)
                _mark(op)
                moved += 1
        return moved

    # One for two.

    def merge_covered(self) -> int:
        """Merges checks into ones that imply them; returns the number of removed ones."""
        merged = 0
        sizes = Sizes(self.block)
        operations = operations_of(self.block)
        sizes.learn(about_sizes(operations))
        nearby: dict[tuple[str, frozenset[str]], list[tuple[Condition, Any]]] = {}
        for name, op in operations:
            if name not in _CHECKS:
                if _is_work(name):
                    nearby.clear()
                continue
            condition = read_condition(sizes, op.operands[0])
            if condition is not None:
                if not self.is_safe(condition):
                    nearby.clear()  # what protects it must not go behind it
                same = nearby.setdefault((op.name, condition.symbols), [])
                merged += self.merge_or_add(same, condition, op)
        return merged

    def merge_or_add(self, others: list[tuple[Condition, Any]], condition: Condition, op: Any) -> bool:
        """Merges the check with one of the others that covers it or is covered; else it becomes one of them."""
        for other, other_op in others[-_COMPARED:]:
            kept = op if self.covers(condition, other) else other_op if self.covers(other, condition) else None
            if kept is None:
                continue
            gone = other_op if kept == op else op
            merge(kept, gone)
            others.remove((other, other_op))
            others.append((condition, op) if kept == op else (other, other_op))
            gone.erase()
            return True
        others.append((condition, op))
        return False

    def covers(self, condition: Condition, other: Condition) -> bool:
        known = Knowledge({name: self.rows[name] for name in condition.symbols if name in self.rows})
        known.assume(condition)
        return known.proves(other)


class _Order:
    """The operations of a block by position. What has been moved up has the position that it was moved to.

    Values are the keys, not operations: an operation's hash changes with its attributes.
    """

    def __init__(self, block: ir.Block) -> None:
        self.operations = operations_of(block)
        self.position = {value: (i, 0) for i, (_, op) in enumerate(self.operations) for value in op.results}
        symbols = [i for i, (name, _) in enumerate(self.operations) if name == "symshape.symbol"]
        self.last_symbol = max(symbols, default=-1)
        self.works = [0]  # how many of the operations before a position are work
        for name, _ in self.operations:
            self.works.append(self.works[-1] + _is_work(name))
        self.sizes = Sizes(block)
        self.sizes.learn(about_sizes(self.operations))
        self._moves = 0
        self._tails: dict[int, Any] = {}

    def needed_by(self, op: Any) -> tuple[list[ir.Value], set[int]]:
        """The arithmetic results in this block that an operation depends on, and the positions of the values that these
        start from."""
        arithmetic: dict[ir.Value, None] = {}
        roots: set[int] = set()
        todo = [op]
        while todo:
            for value in todo.pop().operands:
                if value not in self.position or value in arithmetic:
                    continue
                owner = value.owner
                if owner.name.startswith("arith."):
                    arithmetic[value] = None
                    todo.append(owner)
                else:
                    roots.add(self.position[value][0])
        return list(arithmetic), roots

    def move(self, op: Any, arithmetic: list[ir.Value], anchor: int) -> None:
        """Moves an operation and its arithmetic directly after the anchor, and after operations there that do no
        work."""
        end = anchor + 1
        while end < len(self.operations) and not _is_work(self.operations[end][0]):
            end += 1
        late = sorted((v for v in arithmetic if self.position[v][0] >= end), key=self.position.__getitem__)
        for value in late:
            self.put(value.owner, end)
            self._moves += 1
            self.position[value] = end - 1, self._moves
        self.put(op, end)

    def put(self, op: Any, end: int) -> None:
        tail = self._tails.get(end)
        if tail is not None:
            op.operation.move_after(tail)
        else:
            op.operation.move_before(self.operations[end][1])
        self._tails[end] = op.operation


def _is_work(name: str) -> bool:
    return not name.startswith("arith.") and name not in _NO_WORK


def _mark(op: Any) -> None:
    set_status(op, "hoisted")
