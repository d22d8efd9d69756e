"""Maps an error of the host program to the user's lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import callee_of
from symshape.dialects.locations import source_lines

FALLIBLE = frozenset({"host.call", "host.launch", "tensor.empty", "symshape.unbacked_symbol"})
_CHECKING = frozenset({"symshape.check_index", "arith.divsi", "arith.remsi", "arith.divui", "arith.remui"})


def lines_of(op: Any, checking: Collection[str]) -> Sequence[str]:
    """``file:line`` of an operation; for the launch of a ``checking`` kernel (one with an error slot) of its checks."""
    callee = callee_of(op) if op.name == "host.launch" else ""
    if callee not in checking:
        return source_lines(op.location)
    found: dict[str, None] = {}

    def visit(inner: Any) -> Any:
        if inner.name in _CHECKING:
            found.update(dict.fromkeys(source_lines(inner.location)))
        return ir.WalkResult.ADVANCE

    module = op.parent.operation.parent
    kernel = next(f for f in module.regions[0].blocks[0].operations if f.name.value == callee)
    kernel.operation.walk(visit)
    return list(found) or source_lines(op.location)
