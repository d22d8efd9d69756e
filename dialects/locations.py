"""Locations of ops as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir


@dataclass(frozen=True)
class SourceLocation:
    """A position in a source file; line 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else "<unknown>"


def parts_of(location: ir.Location) -> list[ir.Location]:
    """The locations that were fused into one, in order; of one that is not fused itself."""
    return list(location.locations) if isinstance(location, ir.FusedLoc) else [location]


def source_location(location: ir.Location) -> SourceLocation:
    """The first file position inside a location: through names, fusions and call sites."""
    match location:
        case ir.FileLineColLoc():
            return SourceLocation(location.filename, location.start_line, location.start_col)
        case ir.NameLoc():
            return source_location(location.child_loc)
        case ir.CallSiteLoc():
            return source_location(location.callee)
        case ir.FusedLoc():
            inner = (source_location(part) for part in location.locations)
            return next((found for found in inner if found.line), SourceLocation())
        case _:
            return SourceLocation()


def source_line(location: ir.Location) -> str:
    """``file:line`` of the user's code; MLIR's own text of the location if it has none."""
    found = source_location(location)
    return f"{found.file}:{found.line}" if found.line else str(location)


def known_lines(location: ir.Location) -> tuple[str, ...]:
    """``file:line`` of everything that was fused into a location, in order, each once."""
    if isinstance(location, ir.FusedLoc):
        return tuple(dict.fromkeys(line for part in location.locations for line in known_lines(part)))
    found = source_location(location)
    return (f"{found.file}:{found.line}",) if found.line else ()


def source_lines(location: ir.Location) -> tuple[str, ...]:
    """`known_lines`; MLIR's own text if nothing is known."""
    return known_lines(location) or (str(location),)


def node_names(location: ir.Location) -> tuple[str, ...]:
    """The names of the graph nodes that an operation comes from (``Importer.location``), in order, each once."""
    match location:
        case ir.NameLoc():
            found = [location.name_str, *node_names(location.child_loc)]
        case ir.FusedLoc():
            found = [name for part in location.locations for name in node_names(part)]
        case ir.CallSiteLoc():
            found = [*node_names(location.callee), *node_names(location.caller)]
        case _:
            found = []
    return tuple(dict.fromkeys(found))
