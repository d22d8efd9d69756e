"""MLIR's diagnostics as plain data: location, severity, message, notes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch_mlir import ir

from symshape.dialects.locations import SourceLocation, node_names, source_location


@dataclass(frozen=True)
class Diagnostic:
    """One diagnostic of MLIR's. ``severity`` is "error", "warning", "remark" or "note"; ``operations`` are the graph
    nodes that it is about."""

    location: SourceLocation
    severity: str
    message: str
    notes: tuple[Diagnostic, ...] = ()
    operations: tuple[str, ...] = ()

    def __str__(self) -> str:
        own = f"{self.location}: {self.severity}: {self.message}"
        return "\n".join([own, *(str(note) for note in self.notes)])


@contextmanager
def collect_diagnostics(ctx: ir.Context, *, only_errors: bool = True) -> Iterator[list[Diagnostic]]:
    """Collects the errors reported while the block runs, instead of having them printed or folded into an exception.

    With ``only_errors``, warnings and remarks go on to the next handler (the last one is MLIR's, which prints them).
    """
    found: list[Diagnostic] = []

    def handle(diagnostic: ir.Diagnostic) -> bool:
        if only_errors and diagnostic.severity is not ir.DiagnosticSeverity.ERROR:
            return False
        found.append(read(diagnostic))
        return True

    previous = ctx.emit_error_diagnostics
    ctx.emit_error_diagnostics = True  # else the bindings keep errors for themselves
    handler = ctx.attach_diagnostic_handler(handle)
    try:
        yield found
    finally:
        handler.detach()
        ctx.emit_error_diagnostics = previous


def read(diagnostic: ir.Diagnostic) -> Diagnostic:
    severity = str(diagnostic.severity).rpartition(".")[2].lower()
    notes = tuple(read(n) for n in diagnostic.notes)
    where = diagnostic.location
    return Diagnostic(source_location(where), severity, diagnostic.message, notes, node_names(where))
