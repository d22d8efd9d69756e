"""The constraints of a graph as the report shows them."""

from __future__ import annotations

from torch_mlir import ir

from symshape.passes.constraints.constraint_table import Entry, read_entries
from symshape.passes.framework.base import PassContext
from symshape.tools.report import ConstraintReport


def read_constraints(module: ir.Module, context: PassContext) -> list[ConstraintReport]:
    """All constraints of a module that the passes of ``context`` have run on: those that are left, then the others."""
    return [_report(entry) for entry in read_entries(module, context)]


def _report(entry: Entry) -> ConstraintReport:
    return ConstraintReport(entry.text, entry.kind, entry.status, entry.lines[0], entry.message, entry.lines)
