"""The table of all constraints of a module: removed and remaining ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import is_subgraph, main_functions, message_of, status_of
from symshape.dialects.conditions import read_condition
from symshape.dialects.locations import source_lines
from symshape.dialects.sizes import Sizes
from symshape.passes.framework.base import PassContext
from symshape.prover.numbers.condition import Condition

KINDS = frozenset({"symshape.assume", "symshape.expect_true", "symshape.guard"})
_PLAIN = ("host.", "symshape.", "arith.", "func.")  # dialects whose ops have no regions (but for functions)


@dataclass(frozen=True)
class Entry:
    """A constraint: its condition as text, its kind, its status, its message, and all its ``file:line``.

    ``status``: "assumed" (a fact), "proven" (from facts alone), "implied" (by facts and other constraints), "hoisted"
    (checked at run time, earlier than where it is written), "checked" (at run time, where it is written).
    """

    text: str
    kind: str
    status: str
    message: str
    lines: tuple[str, ...]


def operations_of(block: ir.Block) -> list[tuple[str, Any]]:
    """The operations of a block with their names, which are expensive to read."""
    operations = [view.operation for view in block.operations]
    return [(op.name, op) for op in operations]


def about_sizes(operations: Sequence[tuple[str, Any]]) -> list[Any]:
    """The operations that compute sizes and conditions. Most operations of a graph are calls and binds of their
    results: these are included only if sizes are read from tensors."""
    dims = any(name == "tensor.dim" for name, _ in operations)
    return [op for name, op in operations if name != "host.call" and (dims or name != "symshape.bind")]


def inner_blocks(name: str, op: Any) -> list[ir.Block]:
    """The blocks inside an operation."""
    if name.startswith(_PLAIN):
        return []
    return [block for region in op.regions for block in region.blocks]


def main_blocks(module: ir.Module) -> Iterator[ir.Block]:
    """The entry blocks of the functions that are no kernels."""
    for function in main_functions(module):
        if function.regions[0].blocks:
            yield function.regions[0].blocks[0]


def record(context: PassContext, op: Any, condition: Condition, status: str) -> None:
    """Records a constraint that is about to be removed."""
    context.constraints.append(_entry(op, condition, status))


def read_entries(module: ir.Module, context: PassContext) -> list[Entry]:
    """The remaining constraints, in order, then those that the passes of ``context`` removed."""
    entries: list[Entry] = []
    with module.context:
        for block in main_blocks(module):
            own = _read(block, Sizes(block))
            in_branch = is_subgraph(block.owner)
            entries += [e for e in own if not in_branch or e.kind != "assume"]  # they are those of main
    return entries + context.constraints


def _read(block: ir.Block, sizes: Sizes) -> Iterator[Entry]:
    operations = operations_of(block)
    sizes.learn(about_sizes(operations))
    for name, op in operations:
        if name in KINDS:
            yield _entry(op, read_condition(sizes, op.operands[0]), _status(op))
        for inner in inner_blocks(name, op):
            yield from _read(inner, sizes.nested(inner))


def _status(op: Any) -> str:
    if op.name == "symshape.assume":
        return "assumed"
    return status_of(op) or "checked"


def _entry(op: Any, condition: Condition | None, status: str) -> Entry:
    text = "a condition that is not about sizes" if condition is None else str(condition)
    return Entry(text, op.name.removeprefix("symshape."), status, message_of(op), source_lines(op.location))


def table_text(entries: Sequence[Entry]) -> str:
    """One line per entry: ``s1 >= 4*s0 hoisted expect_true model.py:31 "rows must fit"``."""
    rows = [(e.text, e.status, e.kind, ", ".join(e.lines), f'"{e.message}"' if e.message else "") for e in entries]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    return "".join("   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n" for row in rows)
