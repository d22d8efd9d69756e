"""Locations of ops as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir


@dataclass(frozen=True)
class Place:
    """A position in a source file; line 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else "<unknown>"


def place_of(location: ir.Location) -> Place:
    """The first file position inside a location: through names, fusions and call sites."""
    match location:
        case ir.FileLineColLoc():
            return Place(location.filename, location.start_line, location.start_col)
        case ir.NameLoc():
            return place_of(location.child_loc)
        case ir.CallSiteLoc():
            return place_of(location.callee)
        case ir.FusedLoc():
            places = (place_of(part) for part in location.locations)
            return next((place for place in places if place.line), Place())
        case _:
            return Place()


def source_line(location: ir.Location) -> str:
    """``file:line`` of what the user wrote; MLIR's own text where that is not known."""
    place = place_of(location)
    return f"{place.file}:{place.line}" if place.line else str(location)


def source_lines(location: ir.Location) -> tuple[str, ...]:
    """``file:line`` of everything that was fused into a location, in order, each once; MLIR's own text if nothing is
    known."""
    parts = location.locations if isinstance(location, ir.FusedLoc) else ()
    lines = [line for part in parts for line in source_lines(part)] or [source_line(location)]
    return tuple(dict.fromkeys(lines))


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
