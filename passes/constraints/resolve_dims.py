"""resolve-dims: one SSA value for each size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.conditions import read_condition
from symshape.dialects.sizes import Sizes
from symshape.passes.constraints.constraint_facts import Knowledge, parts_of
from symshape.passes.constraints.constraint_ops import Program, erase_unused, programs
from symshape.passes.constraints.constraint_table import KINDS, inner_blocks, operations_of
from symshape.passes.framework.base import Pass, PassContext
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class ResolveDims(Pass):
    """Gives every size one value: of index computations that are equal under the facts all uses refer to the first.

    Before::

        "symshape.assume"(%s0_eq_s1) : (i1) -> ()
        %d = tensor.dim %x, %c0 : tensor<?xf32>                         // bound to %s1
        %0 = arith.muli %d, %c4 : index
        %1 = arith.floordivsi %0, %c4 : index
        %y = "host.call"(%x, %0, %1) {...}

    After::

        "symshape.assume"(%s0_eq_s1) : (i1) -> ()
        %0 = arith.muli %s0, %c4 : index
        %y = "host.call"(%x, %0, %s0) {...}

    Two computations are equal if the prover's canonical forms of them are, under the ranges of backed symbols,
    assumptions about inputs, and the constraints before the computation. Equal symbols become one everywhere but in
    conditions of constraints: there, only computations that are equal without any facts are replaced, since the fact
    would otherwise be lost. A symbol that is known to be a number stays: types of tensors depend on it.
    """

    name: ClassVar[str] = "resolve-dims"
    statistics: ClassVar[dict[str, str]] = {
        "same": "sizes that are computed already",
        "better": "sizes that have a simpler form under the facts",
        "operands": "operands that became the better value",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        changed = False
        for program in programs(module, None):
            resolver = _Resolver(program)
            resolver.block(program.block, _Scope(Sizes(program.block), program.trusted(), {}))
            if resolver.changed:
                erase_unused(program.block)
            self.count(context, **resolver.counts)
            changed |= resolver.changed
        return changed


@dataclass
class _Scope:
    """The state at one point of the walk: the first value of every size, the facts, and the replacements."""

    sizes: Sizes
    knowledge: Knowledge
    instead: dict[ir.Value, ir.Value]
    waiting: list[ir.Value] = field(default_factory=list)  # for a symbol of their better form that comes later

    def nested(self, block: ir.Block) -> _Scope:
        return _Scope(self.sizes.nested(block), self.knowledge.copy(), dict(self.instead))

    def final(self, value: ir.Value) -> ir.Value:
        """The replacement of a value. Later facts may have replaced its replacement."""
        seen = {value}
        while value in self.instead and self.instead[value] not in seen:
            value = self.instead[value]
            seen.add(value)
        return value


class _Resolver:
    def __init__(self, program: Program) -> None:
        self.program, self.changed = program, False
        self.counts: Counter[str] = Counter()
        self.evidence = _arithmetic_of_constraints(program.block)

    def block(self, block: ir.Block, scope: _Scope) -> None:
        operations = operations_of(block)
        silent = {"host.call", "symshape.bind"} - {"symshape.bind" for name, _ in operations if name == "tensor.dim"}
        for name, op in operations:
            if scope.instead and name not in KINDS and not self.is_evidence(name, op):
                self.replace_operands(op, scope)
            if name in silent:
                continue
            if name in KINDS:
                self.learn(op, scope)
            elif scope.sizes.read(op):
                if name != "symshape.bind" and op.results[0] in scope.sizes:
                    self.definition(op, scope)
            else:
                for inner in inner_blocks(name, op):
                    self.block(inner, scope.nested(inner))

    def is_evidence(self, name: str, op: Any) -> bool:
        return name.startswith("arith.") and op.results[0] in self.evidence

    def replace_operands(self, op: Any, scope: _Scope) -> None:
        for i, value in enumerate(op.operands):
            better = scope.final(value)
            if better != value:
                op.operands[i] = better
                self.counts["operands"] += 1
                self.changed = True

    def definition(self, op: Any, scope: _Scope) -> None:
        """Handles the definition of a size: replaces it by an equal earlier value, and finds its canonical form under
        the facts."""
        value = op.results[0]
        with ir.InsertionPoint(op), op.location:  # only a number is written here
            first = scope.sizes.value(scope.sizes.expr(value))
        if first != value:
            value.replace_all_uses_with(first)
            self.counts["same"] += 1
            if op.name == "tensor.dim":
                op.erase()
            self.changed = True
            return
        after = ir.InsertionPoint.after(op)
        self.stand_in(value, after, op.location, scope)
        if op.name.startswith("symshape.") and scope.waiting:
            waiting, scope.waiting = scope.waiting, []
            for other in waiting:
                self.stand_in(other, after, op.location, scope)

    def stand_in(self, value: ir.Value, after: ir.InsertionPoint, location: ir.Location, scope: _Scope) -> None:
        """Finds the value that replaces ``value`` after a point, or emits it there. All values that are emitted after
        one operation share the point, so that each may use the ones before it."""
        expr = scope.sizes.expr(value)
        simple = scope.knowledge.simplify_expr(expr)
        if simple == expr or simple.as_int() is not None:
            return  # a number in the place of a size would need another type of every tensor that has it
        if not all(Expr.symbol(name) in scope.sizes for name in simple.symbols):
            scope.waiting.append(value)
            return
        with after, location:
            scope.instead[value] = scope.sizes.value(simple)
        self.counts["better"] += 1
        self.changed = True

    def learn(self, op: Any, scope: _Scope) -> None:
        """Adds a constraint's condition to the facts from here on, and updates the sizes that it makes equal."""
        condition = read_condition(scope.sizes, op.operands[0])
        if condition is None or (op.name == "symshape.assume" and self.program.holds_at_entry(condition)):
            return
        scope.knowledge.assume(condition)
        if any(part.kind == "eq" for part in parts_of(condition)):
            after = ir.InsertionPoint.after(op)
            for value, expr in scope.sizes.known():
                if not expr.symbols.isdisjoint(condition.symbols):
                    self.stand_in(value, after, op.location, scope)


def _arithmetic_of_constraints(block: ir.Block) -> set[ir.Value]:
    """The results of arithmetic for conditions of constraints, in this block and nested ones.

    Values, since an operation's hash changes with its operands.
    """
    found: set[ir.Value] = set()
    todo = []
    blocks = [block]
    while blocks:
        for name, op in operations_of(blocks.pop()):
            if name in KINDS:
                todo.append(op)
            blocks += inner_blocks(name, op)
    while todo:
        for value in todo.pop().operands:
            owner = value.owner
            if not isinstance(owner, ir.Block) and owner.name.startswith("arith.") and value not in found:
                found.add(value)
                todo.append(owner)
    return found
