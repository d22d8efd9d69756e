"""sink-waits: moves the wait for a collective down to the first use of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import (
    body_of,
    call_target,
    collective_number,
    destinations,
    is_allocated,
    is_fresh,
    is_wait,
    main_functions,
)
from symshape.passes.framework.base import Pass, PassContext


@dataclass(frozen=True)
class SinkWaits(Pass):
    """Kernels and library calls that do not need a collective's result run before the wait for it.

    Before::

        %r = "host.call"(%y) {target = "_c10d_functional.all_reduce.default", collective = 0}
        %w = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default"}
        %a = "host.launch"(%x, %d) {callee = @kernel_0}
        %b = "host.launch"(%a, %w, %e) {callee = @kernel_1}

    After::

        %r = "host.call"(%y) {target = "_c10d_functional.all_reduce.default", collective = 0}
        %a = "host.launch"(%x, %d) {callee = @kernel_0}
        %w = "host.call"(%r) {target = "_c10d_functional.wait_tensor.default"}
        %b = "host.launch"(%a, %w, %e) {callee = @kernel_1}

    The collective reads its operands until the wait: operations that may write to aliased memory stay after it (calls
    that are not ``fresh``, branches, reused memory). Collectives do not move, so all ranks keep their order; an unused
    wait comes last. Binds and views of the result move with the wait.
    """

    name: ClassVar[str] = "sink-waits"
    statistics: ClassVar[dict[str, str]] = {"waits": "waits for collectives", "sunk": "waits that came later"}

    def run(self, module: ir.Module, context: PassContext) -> bool:
        count = {"waits": 0, "sunk": 0}
        for function in main_functions(module):
            operations = body_of(function)
            for position in reversed(range(len(operations))):
                if is_wait(operations[position]):
                    count["waits"] += 1
                    count["sunk"] += _sink(operations, position)
        self.count(context, **count)
        return count["sunk"] > 0


def _sink(operations: list[Any], position: int) -> bool:
    """Moves the wait at ``position``, here and in the block. Whether anything is before it that was behind it."""
    moved, crossed = [operations[position]], []
    values = set(moved[0].results)
    for op in operations[position + 1 :]:
        uses = any(value in values for value in op.operands)
        if uses and op.name in ("symshape.bind", "symshape.view"):
            moved.append(op)
            values.update(op.results)
        elif uses or not _may_run_before(op):
            break
        else:
            crossed.append(op)
    if not any(op.name in ("host.call", "host.launch", "symshape.unbacked_symbol") for op in crossed):
        return False
    behind = operations[position + len(moved) + len(crossed)]
    for op in moved:
        op.move_before(behind)
    operations[position : position + len(moved) + len(crossed)] = [*crossed, *moved]
    return True


def _may_run_before(op: Any) -> bool:
    """Whether an operation that does not use the result writes to no memory that the collective may read."""
    if op.name == "host.launch":
        return all(is_allocated(dest) for dest in destinations(op))
    if op.name == "host.call":
        constant = call_target(op) == "symshape.constant"
        return constant or is_fresh(op) or collective_number(op) is not None or is_wait(op)
    return op.name in _QUIET or op.name.startswith("arith.")


_QUIET = frozenset(
    {
        "tensor.empty",
        "symshape.bind",
        "symshape.view",
        "symshape.unbacked_symbol",
        "symshape.expect_true",
        "symshape.assume",
        "symshape.guard",
        "symshape.symbol",
    }
)
