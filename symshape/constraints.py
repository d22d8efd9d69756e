"""The constraints of a graph as the report shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch_mlir import ir

from symshape.dialects.conditions import condition_of
from symshape.dialects.places import source_line
from symshape.dialects.sizes import Sizes
from symshape.report import ConstraintReport
from symshape.runtime.checks import CheckText

_MESSAGES = {"symshape.assume": "", "symshape.expect_true": "message", "symshape.guard": "reason"}


def read_constraints(function: Any) -> list[ConstraintReport]:
    """All constraints of a function, in order. What must hold counts as proven until ``settle`` has seen the checks."""
    block = function.regions[0].blocks[0]
    operations = [view.operation for view in block.operations]
    with function.context:
        sizes = Sizes(block)
        sizes.learn(operations)
    return [_read(sizes, op) for op in operations if op.name in _MESSAGES]


def _read(sizes: Sizes, op: Any) -> ConstraintReport:
    key = _MESSAGES[op.name]
    return ConstraintReport(
        text=str(condition_of(sizes, op.operands[0])),
        kind=op.name.removeprefix("symshape."),
        status="proven" if op.name == "symshape.expect_true" else "assumed",
        source=source_line(op.location),
        message=ir.StringAttr(op.attributes[key]).value if key else "",
    )


def settle(constraints: Iterable[ConstraintReport], checks: Iterable[CheckText]) -> list[ConstraintReport]:
    """The same constraints; those that the host program checks are called so."""
    remaining = {(check.message, check.location) for check in checks}

    def is_checked(c: ConstraintReport) -> bool:
        return c.kind == "expect_true" and c.text != "True" and (c.message, c.source) in remaining

    return [c.with_status("checked") if is_checked(c) else c for c in constraints]
