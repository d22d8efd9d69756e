"""The output of the host program's writer: the source, and the facts that the loader and the report need."""

from __future__ import annotations

from dataclasses import dataclass, field

from symshape.artifact.constraint_checks import CheckText
from symshape.codegen.host.entry_guards import EntryGuards
from symshape.prover.numbers.expr import Expr

Buffer = tuple[tuple[Expr, ...], str]  # sizes, element type


@dataclass(frozen=True)
class LibraryCall:
    """A library call for the report. ``buffers``: sizes and element type of each buffer that it reads or writes; a view
    counts as the elements that it shows, and unused results are left out (as in Inductor's metrics)."""

    target: str
    buffers: tuple[Buffer, ...]


@dataclass
class ProgramText:
    """``source`` defines ``program(args)``; the names it uses besides its own are listed for the loader."""

    source: str = ""
    kernels: list[str] = field(default_factory=list)  # names of launched kernels
    targets: dict[str, str] = field(default_factory=dict)  # Python name -> library op
    checks: list[CheckText] = field(default_factory=list)
    launches: list[tuple[str, tuple[Expr, ...]]] = field(default_factory=list)  # in order: kernel, its index arguments
    user_lines: list[tuple[int, str]] = field(default_factory=list)  # from this line on: the user's lines
    segments: list[str] = field(default_factory=list)  # its functions that are runs of native work
    stub: str = ""  # the first lines of the source: symbols are bound and constraints checked, before any work
    calls: list[LibraryCall] = field(default_factory=list)  # in order
    entry: EntryGuards = field(default_factory=EntryGuards)
    uncaptured: str = ""  # why its launches cannot be a CUDA graph
