"""Constraints of a graph, converted to entries of the report."""

from __future__ import annotations

from torch_mlir import ir

from symshape.passes.constraints.constraint_table import Entry, read_entries
from symshape.passes.framework.base import PassContext
from symshape.tools.report import ConstraintReport


def read_constraints(module: ir.Module, context: PassContext) -> list[ConstraintReport]:
    """All constraints of a module after the passes of ``context``: those still in the IR, then removed ones."""
    return [_report(entry) for entry in read_entries(module, context)]


def _report(entry: Entry) -> ConstraintReport:
    return ConstraintReport(entry.text, entry.kind, entry.status, entry.lines[0], entry.message, entry.lines)
